"""Scripts are followed as bash runs them: the words that a stand-in for the launcher is started with are the same."""

import os
import shutil
import subprocess

import pytest

from shardwise.programs.formats._shell import read_shell

STAND_IN = """#!/bin/bash
for word in "$@"; do printf '%s\\0' "$word"; done >> "$RECORD"
printf '\\1' >> "$RECORD"
"""
SCRIPTS = {
    "arrays": """declare -a ARGS=(--tp 4 --pp 2)
ARGS+=(--name "a b")
readonly N=8
run "${ARGS[@]}" --n ${#ARGS[@]} --first ${ARGS[1]} --last ${ARGS[-1]}""",
    "defaults": """: "${X:=5}"
Y=${Y:-$((X * 2))}
Z=${Z:+set}
run --x $X --y $Y --z "$Z" ${W-none}""",
    "conditions": """N=8; X=5
if [[ $N -eq 8 && "$X" == 5 ]]; then A=both; elif [ $N -gt 2 ]; then A=some; else A=none; fi
[ -n "$X" ] && B=full || B=empty
[ -z "$X" ] && C=empty || C=full
[[ ! ( $N -lt 4 || $X -ge 6 ) ]] && D=in
if (( N > 4 )); then E=large; else E=small; fi
if [ $N -lt 4 -o "$X" != 5 ]; then F=1; else F=0; fi
[[ "llama-70b" == *70b* ]] && G=big
run $A $B $C $D $E $F $G""",
    "cases": """SIZE=70b
case "$SIZE" in
  7b|8b) TP=1 ;;
  (70b) TP=8 ;;
  *) TP=2
esac
run --tp $TP""",
    "functions": """launch() {
  local tp=$1; shift
  run --tp "$tp" --n $# "$@"
}
function other { run other; }
launch 4 "x y" z
other""",
    "loops": """for tp in 1 2 4; do
  if [ $tp -eq 4 ]; then break; fi
  run --tp $tp
done
for i in $(seq 2 3); do run $i; done""",
    "edits": """FILE=conf/llama_7b.yaml
run ${FILE##*/} ${FILE%.yaml} ${FILE/7b/8b} ${FILE%%/*} ${#FILE} ${FILE:0:4}
declare -A SIZES=([small]=1 [large]=8)
KEY=large
run ${SIZES[$KEY]}
U=ABC; run ${U,,}""",
    "substitutions": """HERE=$(dirname a/b.sh)
N=$(expr 4 \\* 2)
run $HERE $(basename a/b.sh .sh) $N $(echo one two) "$(echo 'a  b')" `echo back`""",
    "words": """A='--x 1 --y 2'
B="it's $A"
run $A "$A" "$B" a\\ b 'c d'"e f" "" --z=$((1+2)) # not this
run 1 > /dev/null 2>&1 | cat
run 2 \\
  3 && run 4 || run 5
(run 6; X=7); run ${X:-8}""",
    "eval": """CMD="run --a 1"
CMD="$CMD --b 'two words'"
eval $CMD
$CMD
bash -c "run --c 3"
set -- p q
run "$@" $1 $#""",
    "guards": """set -euo pipefail
NAME=x
if [ -z "$NAME" ]; then echo "NAME?"; exit 1; fi
while false; do run never; done
until true; do run never; done
run done
exit 0
run behind""",
    "pipes": """A=$(echo a/b/c | rev | cut -d/ -f1 | rev)
B=$(echo "Qwen3-8B" | tr '[:upper:]' '[:lower:]')
C=$(echo 4,5,6 | awk -F, '{print $2}')
D=$(printf '%s-%s' x y | sed 's/x/z/')
E=$(echo "one two" | wc -w | tr -d ' ')
F=$(echo a b | tr ' ' '+' | head -n 1)
run $A $B $C $D $E $F""",
    "slices": r"""set -- a b c d
run "${@:2}" "${@:1:2}" ${@:4}
L=(u v w); run "${L[@]:1}" ${L[@]:0:1} "${L[*]: -1}"
X=abcdef; run ${X:2:3} ${X: -2} ${X//cd/_} "${X/#ab/z}" ${X/%ef}
P=a/b/c; run ${P//\//_} ${P/\/b/}""",
    "counted": """N=; for ((i=0; i<3; i++)); do M+=($((i * 2))); done
for ((k = 1 ; k <= 5 ; k += 2)); do N="$N$k"; done
printf -v TEXT "[%s]" "$(IFS=,; echo "${M[*]}")"
run "${M[@]}" "$N" $TEXT $[128 / 4] "${M[*]}"
run $(IFS=+; echo "${M[*]}") "$(X=5; echo $X)" ${X:-unset}""",
    "patterns": """A="a b c"; N=llama-70b
[[ " $A " =~ " b " ]] && B=in
[[ $N =~ ^llama-[0-9]+b$ ]] && C=model
[[ $N =~ mixtral|qwen ]] || D=other
run $B $C $D""",
    "either": """A=$(if [ 4 -gt 2 ]; then echo 1; else echo 0; fi)
run $A""",
    "folders": """HERE=$(basename "$(pwd)"); mkdir -p one/two
cd one/two; INSIDE=$(basename "$PWD"); cd ..; ONE=$(basename "$(pwd)"); cd - > /dev/null
run $INSIDE $ONE $(basename $PWD)
UP=$(basename "$(cd .. && pwd)"); run $UP $(basename "$(dirname "$(pwd)")")""",
    "heredoc": """cat > /dev/null <<EOF
run in the document
EOF
run behind""",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_words_are_those_that_bash_passes(name, tmp_path):
    if (bash := shutil.which("bash")) is None:
        pytest.skip("bash is not on this machine")
    (tmp_path / "run").write_text(STAND_IN)
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "script.sh").write_text(SCRIPTS[name])
    record = tmp_path / "record"
    path = f"{tmp_path}:{os.defpath}"
    environment = {"PATH": path, "RECORD": str(record)}
    subprocess.run([bash, "script.sh"], cwd=tmp_path, env=environment, timeout=20, check=False, capture_output=True,
                   stdin=subprocess.DEVNULL)  # fmt: skip
    calls = [call.split("\0")[:-1] for call in record.read_text().split("\1")[:-1]]
    assert [words[1:] for words in read_shell(SCRIPTS[name]).commands if words[0] == "run"] == calls
    assert calls
