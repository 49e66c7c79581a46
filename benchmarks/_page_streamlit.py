"""The same form in Streamlit, for comparison: cluster, two sliders, memory by kind. Run by `streamlit run`."""

import streamlit as st

from shardwise import Job, Policy, case_of, cluster_of, model_of, report_of, stack_of

tp = st.select_slider("Tensor parallel", [1, 2, 4, 8], value=8)
pp = st.select_slider("Pipeline stages", [1, 2, 4, 8], value=4)
cluster = cluster_of("dgx-h100:64")
case = case_of(model_of("llama-3-70b"), cluster, Job(seq=8192, global_batch=512), stack_of("megatron-core"))
report = report_of(case, Policy(dp=64 // tp // pp, tp=tp, pp=pp, zero=1))
st.write(f"step {report.step_s:.6f} s")
st.bar_chart({f"stage {stage.stage}": stage.kinds_bytes for stage in report.stages})
