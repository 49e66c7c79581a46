"""Every model family and every catalog model meets its contract; a damaged configuration is refused, never a crash."""

import json
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise import catalog
from shardwise.registry import modules
from shardwise.spec.arch import families, model_from_config, model_names, model_of
from shardwise.spec.arch._names import LLAMA
from shardwise.spec.arch.tensors import parameters

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ONE_OF_EACH = sorted({model_of(name).family: name for name in model_names()}.values())


def test_files_are_named_after_their_family() -> None:
    assert set(modules("shardwise.spec.arch.family")) == set(families())


def test_every_model_type_is_claimed_once() -> None:
    claims = Counter(t for family in families().values() for t in family.model_types)
    assert claims
    assert set(claims.values()) == {1}


@pytest.mark.parametrize("family", sorted(families()))
def test_family_reads_a_catalog_model(family: str) -> None:
    assert any(model_of(name).family == family for name in model_names())


@pytest.mark.parametrize("family", sorted(families()))
def test_family_names_only_known_roles(family: str) -> None:
    assert set(families()[family].names) <= set(LLAMA)


@pytest.mark.parametrize("name", model_names())
def test_catalog_model_loads_and_says_where_it_comes_from(name: str) -> None:
    entry, model = catalog.entry("models", name), model_of(name)
    assert model.name == name
    assert model.source
    assert model.published_params > 0
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", entry["_shardwise_date"])


def test_aliases_are_unique() -> None:
    spellings = Counter(model_names())
    for name in model_names():
        spellings.update(alias.lower() for alias in catalog.entry("models", name).get("aliases", []))
    assert [s for s, times in spellings.items() if times > 1] == []


def damaged(config: dict[str, object], data: st.DataObject) -> dict[str, object]:
    """The configuration with some fields dropped or replaced, also inside its sections."""
    for field in data.draw(st.lists(st.sampled_from(sorted(config)), min_size=1, max_size=3), label="fields"):
        inner = config.get(field)
        if isinstance(inner, dict) and inner and data.draw(st.booleans(), label="inside"):
            config[field] = damaged(inner, data)
        elif data.draw(st.booleans(), label="drop"):
            config.pop(field, None)
        else:
            config[field] = data.draw(JSON | st.integers(-2, 300), label="value")
    return config


def refusal(config: dict[str, object], name: str) -> str:
    """Why a configuration is refused; empty when it is read and its tensors can be listed."""
    try:
        parameters(model_from_config(config, name))
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ONE_OF_EACH)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damaged_configuration_is_refused_or_read(name: str, data: st.DataObject) -> None:
    config = damaged(catalog.entry("models", name), data)
    message = refusal(config, name)
    assert message == "" or (message.startswith(f"model {name}: ") and "\n" not in message)


@settings(max_examples=100, deadline=None)
@given(config=st.dictionaries(st.text(max_size=20), JSON, max_size=5), kind=st.sampled_from(sorted(families())))
def test_arbitrary_objects_are_refused(config: dict[str, object], kind: str) -> None:
    config["model_type"] = families()[kind].model_types[0]
    with pytest.raises(ValueError, match="model"):
        model_from_config(config, "random")


def test_catalog_files_are_plain_json_numbers() -> None:
    """Sizes are whole numbers in the files, so that an exact one is exact."""
    for name in model_names():
        assert isinstance(json.loads(json.dumps(catalog.entry("models", name)))["_shardwise_params"], int), name
