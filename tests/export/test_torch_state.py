"""A state_dict says what it means: it makes the module again, and does not load into one that means something else."""

import io

import numpy as np
import pytest
from exportable import KINDS, fit_set, fitted_kind, hostile_rows

import monocal as mc

torch = pytest.importorskip("torch")

from monocal.export import from_state_dict  # noqa: E402  needs torch


def softmax(z):
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def probabilities():
    z, y = fit_set()
    p = softmax(np.nan_to_num(z, neginf=-30.0))
    return p, y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_state_alone_makes_the_module(kind, dtype):
    module = fitted_kind(kind).to_torch(dtype=dtype)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    again = from_state_dict(torch.load(file, weights_only=True))
    rows = torch.from_numpy(hostile_rows())
    assert torch.equal(again(rows), module(rows))
    assert repr(again) == repr(module)


def test_through_safetensors_and_inside_a_model(tmp_path, probabilities):
    library = pytest.importorskip("safetensors.torch")
    p, y = probabilities
    module = mc.MCCT(input="probabilities", shrinkage=0).fit(p, y).to_torch()
    model = torch.nn.Sequential(torch.nn.Softmax(-1), module).half()
    library.save_file(model.state_dict(), tmp_path / "m.safetensors")
    state = library.load_file(tmp_path / "m.safetensors")
    again = from_state_dict(state, prefix="1.")
    rows = torch.from_numpy(p)
    assert torch.equal(again(rows), module(rows))
    assert again.smallest_probability == module.smallest_probability
    model.load_state_dict(state)
    with pytest.raises(mc.InputError, match=r"there is no '_extra_state'.*prefix="):
        from_state_dict(state)


def test_logits_and_probabilities_are_not_mixed(probabilities):
    p, y = probabilities
    of_probabilities = mc.TemperatureScaling(input="probabilities").fit(p, y).to_torch()
    of_logits = mc.TemperatureScaling().fit(np.log(p), y).to_torch()
    before = of_logits.step0_steps.clone()
    for module, state in ((of_logits, of_probabilities), (of_probabilities, of_logits)):
        with pytest.raises(mc.InputError, match=r"has input = .*from_state_dict\(state\)"):
            module.load_state_dict(state.state_dict())
    assert torch.equal(of_logits.step0_steps, before)


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        (mc.MCCT(top_k=3), mc.MCCT(), "n_ranks"),
        (
            mc.ConditionalMCCT(statistics=("margin",)),
            mc.ConditionalMCCT(statistics=("entropy",)),
            "statistics",
        ),
        (mc.ConditionalMCCT(n_knots=2), mc.ConditionalMCCT(n_knots=3), "adjustment"),
    ],
    ids=["top_k", "statistics", "knots"],
)
def test_another_structure_is_refused(one, other, what):
    data = fit_set()
    one, other = one.fit(*data).to_torch(), other.fit(*data).to_torch()
    with pytest.raises(mc.InputError, match=rf"has ({what}|n_jumps) = "):
        one.load_state_dict(other.state_dict())
    fewer = mc.TemperatureScaling().fit(np.zeros((50, 4)), [0] * 50).to_torch()
    with pytest.raises(mc.InputError, match="n_classes = 4"):
        mc.TemperatureScaling().fit(*data).to_torch().load_state_dict(fewer.state_dict())


def test_what_a_fit_learnt_travels_with_the_state(probabilities):
    p, y = probabilities
    first = mc.TemperatureScaling(input="probabilities").fit(p, y).to_torch()
    second = mc.TemperatureScaling(input="probabilities").fit(p[:100], y[:100]).to_torch()
    assert first.smallest_probability != second.smallest_probability
    second.load_state_dict(first.state_dict())
    rows = torch.from_numpy(np.eye(p.shape[1]))
    assert torch.equal(first(rows), second(rows))


def test_states_that_cannot_be_read_are_refused():
    module = fitted_kind("conditional").to_torch()
    state = module.state_dict()
    before = module.step0_steps.clone()
    earlier = {"scale_steps": before[:, 0], "bias_steps": before[:, 1]}
    with pytest.raises(mc.InputError, match="saved by an earlier version of monocal"):
        module.load_state_dict(earlier)
    with pytest.raises(mc.InputError, match="is not what to_torch"):
        module.load_state_dict({**state, "_extra_state": torch.tensor([1, 2])})
    earlier["_extra_state"] = torch.tensor(list(b'{"name": "MCCT", "n_classes": 7}'), dtype=torch.uint8)
    with pytest.raises(mc.InputError, match="written by an earlier version of monocal"):
        from_state_dict(earlier)
    assert torch.equal(module.step0_steps, before)


def test_a_function_stays_with_the_module():
    data = fit_set()
    module = mc.ConditionalMCCT(statistics=lambda u: u[:, -1]).fit(*data).to_torch()
    module.load_state_dict(module.state_dict())
    with pytest.raises(mc.InputError, match="a Python function, which a state cannot hold"):
        from_state_dict(module.state_dict())
