"""The batched views compared with their definition, which computes one view at a time with Pillow."""

import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from semilearn_ext.data import views_reference
from semilearn_ext.data.kernels import randaugment
from semilearn_ext.data.kernels.grouped_batch import GroupedBatch
from semilearn_ext.data.randaugment import RANGES, Operation, magnitudes
from semilearn_ext.data.view_spec import draw_strong, draw_weak
from semilearn_ext.data.views import ViewSpec, denormalise, plain, strong, weak

PACS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "pacs" / "images"
GEOMETRIC = [
    Operation.ROTATE,
    Operation.SHEAR_X,
    Operation.SHEAR_Y,
    Operation.TRANSLATE_X,
    Operation.TRANSLATE_Y,
]
COLOUR = [operation for operation in Operation if operation not in GEOMETRIC]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine, small kernels with several threads spend most of their time waiting."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def to_picture(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())


def to_tensor(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(count: int, size: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (count, 3, size, size), generator=seeded(seed), dtype=torch.uint8)


def assorted(size: int) -> Tensor:
    """Noise, a smooth picture, a low-contrast one, two grey levels, one colour."""
    y, x = torch.meshgrid(*[torch.linspace(0, 1, size)] * 2, indexing="ij")
    smooth = torch.stack([x, (x + y) / 2, (6 * x * y).sin() ** 2]).mul(255).to(torch.uint8)
    speckled = noise(1, size)[0]
    flat = torch.tensor([10, 200, 90], dtype=torch.uint8).view(3, 1, 1).expand(3, size, size)
    return torch.stack([speckled, smooth, smooth // 4 + 60, speckled // 128 * 77 + 20, flat])


def apply_each(images: Tensor, operations: Tensor, values: Tensor) -> Tensor:
    """One operation for every image, in the order of the images."""
    batch = GroupedBatch(images)
    randaugment.apply(batch, operations.numpy(), values.numpy())
    return batch.images[np.argsort(batch.order)]


def apply_one(images: Tensor, operation: Operation, value: float) -> Tensor:
    count = len(images)
    return apply_each(images, torch.full((count,), int(operation)), torch.full((count,), value, dtype=torch.float64))


def pillow_one(images: Tensor, operation: Operation, value: float) -> Tensor:
    return torch.stack([to_tensor(views_reference.OPERATIONS[operation](to_picture(image), value)) for image in images])


def inside(operation: Operation, share: float) -> float:
    low, high = RANGES[operation]
    return low + share * (high - low)


def level_difference(first: Tensor, second: Tensor) -> Tensor:
    return (first.int() - second.int()).abs()


@pytest.mark.parametrize("size", [32, 57])
@pytest.mark.parametrize("share", [0.0, 0.13, 0.5, 0.77, 0.999])
@pytest.mark.parametrize("operation", COLOUR, ids=lambda operation: operation.name)
def test_colour_operations_equal_pillows(operation: Operation, share: float, size: int) -> None:
    images, value = assorted(size), inside(operation, share)
    difference = level_difference(apply_one(images, operation, value), pillow_one(images, operation, value))
    assert difference.max() <= 1
    assert (difference > 0).float().mean() < 0.01


@pytest.mark.parametrize("size", [32, 57])
@pytest.mark.parametrize("share", [0.0, 0.13, 0.5, 0.77, 0.999])
@pytest.mark.parametrize("operation", GEOMETRIC, ids=lambda operation: operation.name)
def test_geometric_operations_equal_pillows(operation: Operation, share: float, size: int) -> None:
    images, value = noise(3, size), inside(operation, share)
    is_equal = apply_one(images, operation, value) == pillow_one(images, operation, value)
    assert is_equal.float().mean() > 0.995


@pytest.mark.parametrize("operation", [op for op in Operation if op != Operation.IDENTITY])
def test_operation_changes_a_low_contrast_picture(operation: Operation) -> None:
    images = assorted(32)[2:3]
    assert (apply_one(images, operation, inside(operation, 0.2)) != images).any()


def test_a_mixed_batch_gives_every_image_its_own_operation_and_magnitude() -> None:
    operations = torch.arange(3 * len(Operation)).flip(0) % len(Operation)
    uniform = torch.rand(len(operations), generator=seeded(1)).double()
    values = torch.from_numpy(magnitudes(operations.numpy(), uniform.numpy()))
    images = noise(len(operations), 24)
    untouched = images.clone()
    augmented = apply_each(images, operations, values)
    for image, result, operation, value in zip(images, augmented, operations, values, strict=True):
        expected = pillow_one(image[None], Operation(int(operation)), float(value))[0]
        assert (level_difference(result, expected) <= 1).float().mean() > 0.995
    assert torch.equal(images, untouched)


def test_ranges_equal_those_of_fixmatch() -> None:
    listed = {operation.name: bounds for operation, bounds in RANGES.items()}
    enhancements = dict.fromkeys(["BRIGHTNESS", "COLOR", "CONTRAST", "SHARPNESS"], (0.05, 0.95))
    shifts = dict.fromkeys(["SHEAR_X", "SHEAR_Y", "TRANSLATE_X", "TRANSLATE_Y"], (-0.3, 0.3))
    without_magnitude = dict.fromkeys(["AUTOCONTRAST", "EQUALIZE", "IDENTITY"], (0, 1))
    others = {"POSTERIZE": (4, 8), "ROTATE": (-30, 30), "SOLARIZE": (0, 256)}
    assert listed == enhancements | shifts | without_magnitude | others


def test_magnitudes_fill_their_ranges() -> None:
    for operation, (low, high) in RANGES.items():
        drawn = magnitudes(np.full(2000, int(operation)), np.random.default_rng(2).random(2000))
        assert low <= drawn.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < drawn.max() < high


def test_operations_are_uniform_and_independent() -> None:
    count, kinds = 14000, len(Operation)
    first, second = draw_strong(seeded(3), count, ViewSpec(8)).operations
    for operations in (first, second):
        frequencies = np.bincount(operations, minlength=kinds) / count
        assert frequencies == pytest.approx(1 / kinds, abs=5 * math.sqrt(1 / kinds / count))
    assert (first == second).mean() == pytest.approx(1 / kinds, abs=5 * math.sqrt(1 / kinds / count))


@pytest.mark.parametrize("draw", [draw_weak, draw_strong])
@pytest.mark.parametrize("flip", [True, False])
def test_half_of_the_images_are_flipped(draw, flip: bool) -> None:
    assert draw(seeded(14), 2000, ViewSpec(8, flip)).flip.mean() == pytest.approx(0.5 if flip else 0.0, abs=0.05)


def test_half_of_the_weak_views_are_enlarged() -> None:
    assert draw_weak(seeded(4), 2000, ViewSpec(8)).enlarge.mean() == pytest.approx(0.5, abs=0.05)


def weak_reference(images: Tensor, spec: ViewSpec, seed: int) -> Tensor:
    draws = draw_weak(seeded(seed), len(images), spec)
    views = [views_reference.weak(to_picture(image), spec, draws.of_image(k)) for k, image in enumerate(images)]
    return torch.from_numpy(np.stack(views))


def strong_reference(images: Tensor, spec: ViewSpec, seed: int) -> Tensor:
    draws = draw_strong(seeded(seed), len(images), spec)
    views = [views_reference.strong(to_picture(image), spec, draws.of_image(k)) for k, image in enumerate(images)]
    return torch.from_numpy(np.stack(views))


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize(("stored", "size", "levels"), [(32, 32, 1), (40, 32, 2), (20, 24, 2)])
def test_weak_views_equal_the_reference(stored: int, size: int, levels: int, flip: bool) -> None:
    """Equal up to one grey level for each resize."""
    images, spec = noise(64, stored), ViewSpec(size, flip)
    views, reference = weak(images, spec, seeded(4)), weak_reference(images, spec, 4)
    assert level_difference(denormalise(views, spec), denormalise(reference, spec)).max() <= levels


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("color", ["black", "mean"])
def test_strong_views_equal_the_reference(flip: bool, color: str) -> None:
    """Equal except for a few pixels that differ by one grey level, which the second operation may amplify."""
    images, spec = assorted(32).repeat(60, 1, 1, 1), ViewSpec(32, flip, cutout_color=color)
    views, reference = strong(images, spec, seeded(5)), strong_reference(images, spec, 5)
    difference = level_difference(denormalise(views, spec), denormalise(reference, spec))
    assert (difference > 0).float().mean() < 0.01
    assert (difference > 1).float().mean() < 0.005


def test_weak_view_uses_every_place_of_the_crop() -> None:
    images, spec = noise(1, 16).expand(400, -1, -1, -1), ViewSpec(16, flip=False)
    assert len(weak(images, spec, seeded(5)).flatten(1).unique(dim=0)) == 1 + 3 * 3


@pytest.mark.parametrize("shape", [(48, 48), (31, 50), (90, 64)])
def test_plain_views_equal_the_reference(shape: tuple[int, int]) -> None:
    images = torch.randint(0, 256, (3, 3, *shape), generator=seeded(6), dtype=torch.uint8)
    spec = ViewSpec(40, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    reference = torch.from_numpy(np.stack([views_reference.plain(to_picture(image), spec) for image in images]))
    difference = (plain(images, spec) - reference).abs() * torch.tensor(spec.std).view(3, 1, 1)
    assert difference.max() < 1.01 / 255


def test_denormalise_undoes_plain() -> None:
    images = noise(4, 32)
    assert torch.equal(denormalise(plain(images, ViewSpec(32)), ViewSpec(32)), images)


def test_denormalise_saturates() -> None:
    extremes = torch.tensor([-100.0, 100.0]).view(2, 1, 1, 1).expand(2, 3, 2, 2)
    assert denormalise(extremes, ViewSpec(2)).unique().tolist() == [0, 255]


@pytest.mark.parametrize("view", [weak, strong])
@pytest.mark.parametrize("stored", [32, 20])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_shape_and_type(view, stored: int, count: int) -> None:
    result = view(noise(count, stored), ViewSpec(32), seeded(7))
    assert result.shape == plain(noise(count, stored), ViewSpec(32)).shape == (count, 3, 32, 32)
    assert result.dtype == torch.float32
    assert result.is_contiguous()


@pytest.mark.parametrize("view", [weak, strong])
def test_views_depend_on_the_seed(view) -> None:
    images, spec = noise(12, 32), ViewSpec(32)
    assert torch.equal(view(images, spec, seeded(8)), view(images, spec, seeded(8)))
    assert not torch.equal(view(images, spec, seeded(8)), view(images, spec, seeded(9)))


@pytest.mark.parametrize("view", [weak, strong])
def test_a_generator_gives_new_views_in_every_call(view) -> None:
    images, spec, rng = noise(12, 32), ViewSpec(32), seeded(8)
    assert not torch.equal(view(images, spec, rng), view(images, spec, rng))


@pytest.mark.parametrize("view", [weak, strong])
def test_views_do_not_depend_on_the_number_of_threads(view) -> None:
    images, spec, result = noise(48, 72), ViewSpec(64), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        result.append(view(images, spec, seeded(10)))
    assert torch.equal(result[0], result[1])
    assert torch.equal(result[0], result[2])


@pytest.mark.parametrize("view", [weak, strong])
def test_views_change_neither_global_random_states_nor_the_images(view) -> None:
    images = noise(8, 32)
    untouched, state, python_state = images.clone(), torch.get_rng_state(), random.getstate()
    view(images, ViewSpec(32), seeded(11))
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python_state
    assert torch.equal(images, untouched)


@pytest.mark.parametrize("view", [weak, strong])
def test_the_number_of_random_draws_does_not_depend_on_the_spec(view) -> None:
    states = []
    for spec in (ViewSpec(32), ViewSpec(16, flip=False, cutout=0)):
        rng = seeded(12)
        view(noise(8, 32), spec, rng)
        states.append(rng.get_state())
    assert torch.equal(*states)


@pytest.mark.parametrize("view", [weak, strong])
def test_copies_of_an_image_in_a_batch_get_different_views(view) -> None:
    images = noise(1, 32).expand(16, -1, -1, -1)
    result = view(images, ViewSpec(32, cutout=0), seeded(13))
    assert len(result.flatten(1).unique(dim=0)) >= 6


def test_cutout_is_black_before_normalisation() -> None:
    images, spec = noise(40, 32), ViewSpec(32)
    black = plain(torch.zeros(1, 3, 1, 1, dtype=torch.uint8), ViewSpec(1))
    uncut, cut = (strong(images, ViewSpec(32, cutout=side), seeded(19)) for side in (0, spec.cutout))
    assert torch.equal(strong(images, spec, seeded(19)), cut)
    changed = (cut != uncut).any(1, keepdim=True).expand_as(cut)
    assert changed.flatten(1).any(1).all()
    assert torch.equal(cut[changed], black.expand_as(cut)[changed])
    assert (denormalise(cut, spec)[changed] == 0).all()


@pytest.mark.parametrize("side", [1, 7, 16])
def test_cutout_is_one_clipped_square(side: int) -> None:
    size, count = 32, 500
    # No grey level is exactly the ImageNet mean, so zeros are cutout and nothing else.
    cut = strong(noise(count, size), ViewSpec(size, cutout=side, cutout_color="mean"), seeded(15)) == 0
    assert torch.equal(cut.all(1), cut.any(1))
    heights, widths = cut[:, 0].any(2).sum(1), cut[:, 0].any(1).sum(1)
    assert torch.equal(cut[:, 0].sum((1, 2)), heights * widths)
    tops, lefts = cut[:, 0].any(2).int().argmax(1), cut[:, 0].any(1).int().argmax(1)
    assert (tops == lefts).float().mean() < 0.5
    clipped = [min(c - side // 2 + side, size) - max(c - side // 2, 0) for c in range(size)]
    for lengths in (heights, widths):
        assert lengths.unique().tolist() == sorted(set(clipped))
        assert lengths.float().mean() == pytest.approx(sum(clipped) / size, rel=0.05)


def test_no_cutout() -> None:
    assert (strong(noise(20, 32), ViewSpec(32, cutout=0, cutout_color="mean"), seeded(16)) != 0).all()


@pytest.mark.parametrize("view", [weak, strong])
def test_a_network_can_be_trained_on_the_views(view) -> None:
    network = torch.nn.Conv2d(3, 4, 3)
    network(view(noise(4, 16), ViewSpec(16), seeded(17))).square().sum().backward()
    assert network.weight.grad is not None
    assert network.weight.grad.abs().min() > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("view", [weak, strong])
def test_views_are_the_same_on_every_device(view) -> None:
    images, spec = noise(12, 40), ViewSpec(32)
    result = view(images.cuda(), spec, seeded(18))
    assert result.is_cuda
    assert torch.equal(result.cpu(), view(images, spec, seeded(18)))


@pytest.mark.parametrize("bad", [torch.zeros(2, 3, 8, 8), torch.zeros(3, 8, 8, dtype=torch.uint8)])
def test_images_of_a_wrong_type_or_shape_are_refused(bad: Tensor) -> None:
    with pytest.raises(ValueError, match="uint8 images"):
        plain(bad, ViewSpec(8))


@pytest.fixture(scope="module")
def pacs_pictures() -> list[Image.Image]:
    files = sorted(PACS.glob("*/*/*.*"))
    if not files:
        pytest.skip("PACS is not beside the repository (shared/data/pacs/images)")
    chosen = random.Random(0).sample(files, 200)
    return [Image.open(file).convert("RGB").resize((227, 227)) for file in chosen]


@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_views_of_pacs_equal_the_reference(pacs_pictures: list[Image.Image], kind: str) -> None:
    spec = ViewSpec(64)
    images = torch.stack([to_tensor(picture) for picture in pacs_pictures])
    views = (weak if kind == "weak" else strong)(images, spec, seeded(1))
    reference = (weak_reference if kind == "weak" else strong_reference)(images, spec, 1)
    difference = level_difference(denormalise(views, spec), denormalise(reference, spec)).float()
    assert difference.mean() < 0.3
    assert (difference > 2).float().mean() < 0.01
