"""A state_dict says what it means: it makes the module again, and does not load into one that means something else."""

import io

import numpy as np
import pytest
from exportable import KINDS, M, fit_set, fitted_kind, hostile_rows

import monocal as mc

torch = pytest.importorskip("torch")

from monocal.export import from_state_dict  # noqa: E402  needs torch


@pytest.fixture(scope="module")
def probabilities():
    z, y = fit_set()
    p = np.exp(np.nan_to_num(z, neginf=-30.0) - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True), y


def stored(state):
    """The state, through a file."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_state_alone_makes_the_module(kind, dtype):
    module = fitted_kind(kind).to_torch(dtype=dtype)
    state = stored(module.state_dict())
    again, other = from_state_dict(state), fitted_kind(kind).to_torch(dtype=dtype)
    for tensor in other.buffers():
        tensor.zero_()
    other.load_state_dict(state)
    rows = torch.from_numpy(hostile_rows())
    assert torch.equal(again(rows), module(rows))
    assert torch.equal(other(rows), module(rows))
    assert repr(again) == repr(module)


@pytest.mark.parametrize("input", ["logits", "probabilities"])
@pytest.mark.parametrize("kind", ["vector", "matrix", "structured", "shift"])
def test_a_chain_from_its_state_alone(kind, input, probabilities):
    p, y = probabilities
    x = p if input == "probabilities" else np.log(np.maximum(p, 1e-30))
    cal = {
        "vector": mc.StructuredScaling(kind="vector", input=input),
        "matrix": mc.StructuredScaling(kind="matrix", input=input),
        "structured": mc.StructuredMCCT(input=input),
        "shift": mc.LabelShift(mc.MCCT(), input=input, prior=np.arange(1, M + 1) / (M * (M + 1) / 2)),
    }[kind].fit(x, y)
    module = cal.to_torch()
    state = stored(torch.nn.Sequential(torch.nn.Identity(), module).state_dict())
    again, x = from_state_dict(state, prefix="1."), torch.from_numpy(x).float()
    assert torch.equal(again(x), module(x))
    assert torch.equal(again.transform(x), module.transform(x))


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


def test_what_means_something_else_is_refused(probabilities):
    p, y = probabilities
    fits = {
        "input": (mc.TemperatureScaling(), mc.TemperatureScaling(input="probabilities")),
        "n_ranks|n_jumps": (mc.MCCT(top_k=3), mc.MCCT()),
        "statistics|n_jumps": [mc.ConditionalMCCT(statistics=(q,)) for q in ("margin", "entropy")],
        "adjustment|n_jumps": (mc.ConditionalMCCT(n_knots=2), mc.ConditionalMCCT(n_knots=3)),
    }
    for what, pair in fits.items():
        one, other = (cal.fit(p if cal.input == "probabilities" else np.log(p), y).to_torch() for cal in pair)
        before = one.step0_steps.clone()
        for module, state in ((one, other), (other, one)):
            with pytest.raises(mc.InputError, match=rf"has ({what}) = .*from_state_dict\(state\)"):
                module.load_state_dict(state.state_dict())
        assert torch.equal(one.step0_steps, before)
    fewer = mc.TemperatureScaling().fit(np.zeros((50, 4)), [0] * 50).to_torch()
    with pytest.raises(mc.InputError, match="n_classes = 4"):
        fitted_kind("temperature").to_torch().load_state_dict(fewer.state_dict())


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
    with pytest.raises(mc.InputError, match="is not what to_torch"):
        module.load_state_dict({**state, "_extra_state": torch.tensor([1, 2])})
    assert torch.equal(module.step0_steps, before)
    own = mc.ConditionalMCCT(statistics=lambda u: u[:, -1]).fit(*fit_set()).to_torch()
    own.load_state_dict(own.state_dict())
    with pytest.raises(mc.InputError, match="a Python function, which a state cannot hold"):
        from_state_dict(own.state_dict())
