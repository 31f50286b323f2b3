"""Prediction: the same as at an evaluation, for any kind of image, with or without the training data."""

from __future__ import annotations

import shutil
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from semilearn_ext.__main__ import parser
from semilearn_ext.analysis.features import compute
from semilearn_ext.analysis.load_model import load_model
from semilearn_ext.analysis.load_run import FinishedRun
from semilearn_ext.analysis.predict import Predictor, image_files
from semilearn_ext.errors import UserError
from semilearn_ext.plugins.confidence import confidence_mask
from tests.analysis.conftest import TrainRun, content_of
from tests.forked import Forked


def pixels_of(run: FinishedRun, count: int = 40) -> torch.Tensor:
    """uint8 images of the target domain."""
    data = load_model(run).data
    return data.store[torch.tensor(data.split.target[:: len(data.split.target) // count][:count])]


def as_picture(image: torch.Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def test_class_probability_and_confidence_are_those_of_an_evaluation(pair: tuple[FinishedRun, FinishedRun]) -> None:
    loaded = load_model(pair[0])
    positions = loaded.data.split.unlabelled
    logits = torch.from_numpy(compute(loaded, positions).logits)
    frame = Predictor.load(pair[0].path)(loaded.data.store[torch.tensor(positions)])
    weight = confidence_mask(loaded.algorithm, logits, logits)
    assert weight is not None
    assert frame["class"].tolist() == [str(k) for k in logits.argmax(1).tolist()]
    np.testing.assert_allclose(frame["probability"], logits.softmax(1).max(1).values, rtol=1e-4)
    assert frame["confident"].tolist() == (weight >= 1).tolist()
    assert 0 < frame["confident"].mean() < 1
    assert (frame["problem"] == "").all()


def test_files_pictures_and_tensors_give_the_same_predictions(
    pair: tuple[FinishedRun, FinishedRun], tmp_path: Path
) -> None:
    pixels = pixels_of(pair[1], 6)
    pictures = [as_picture(image) for image in pixels]
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    predict = Predictor.load(pair[1].path)
    frames = [predict(images) for images in (pixels, pictures, paths)]
    assert frames[2]["image"].tolist() == [str(path) for path in paths]
    assert frames[0]["image"].tolist() == list(range(6))
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(frame.drop(columns="image"), frames[0].drop(columns="image"))
    # Test images are cropped to the centre, so noise to its left and right changes nothing.
    wide = torch.randint(0, 256, (6, 3, 32, 52), dtype=torch.uint8)
    wide[..., 10:42] = pixels
    for images in (wide, [as_picture(image) for image in wide]):
        pd.testing.assert_frame_equal(predict(images), frames[0])
    with pytest.raises(UserError, match="expected uint8"):
        predict(pixels[:, :1])


@pytest.mark.parametrize("algorithm", ["freematch", "flexmatch", "softmatch", "adamatch"])
def test_a_prediction_does_not_depend_on_the_other_images(algorithm: str, train_run: TrainRun) -> None:
    options: dict[str, Any] = {"p_cutoff": 0.5} if algorithm in ("flexmatch", "adamatch") else {}
    run = train_run(algorithm=algorithm, **options)
    pixels = pixels_of(run)
    predict = Predictor.load(run.path)
    together = predict(pixels)
    alone = pd.concat([predict(pixels[k : k + 1]) for k in range(len(pixels))])
    assert together["confident"].tolist() == alone["confident"].tolist()
    assert together["confident"].isin([True, False]).all()
    assert together["class"].tolist() == alone["class"].tolist()


def test_a_method_without_a_threshold_leaves_confident_empty(train_run: TrainRun) -> None:
    predict = Predictor.load(train_run(algorithm="supervised").path)
    assert predict(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))["confident"].isna().all()
    assert "supervised has no confidence threshold" in predict.no_confidence


def test_the_training_data_are_not_needed(train_run: TrainRun, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for domain in ("day", "dusk", "night"):
        for label in ("cat", "dog"):
            folder = tmp_path / "animals" / domain / label
            folder.mkdir(parents=True)
            for number in range(8):
                noise = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
                Image.fromarray(noise).save(folder / f"{number}.png")
    shared = {
        "dataset": "folder",
        "data_dir": str(tmp_path / "animals"),
        "target_domain": "night",
        "labels_per_class": 2,
        "batch_size": 2,
    }
    fixmatch = train_run(**shared, save_dir=str(tmp_path / "runs"))
    adamatch = train_run(**shared, save_dir=str(tmp_path / "runs"), algorithm="adamatch")
    picture = shutil.copy(tmp_path / "animals" / "night" / "cat" / "0.png", tmp_path / "mine.png")
    before = Predictor.load(fixmatch.path)([picture])
    assert Predictor.load(adamatch.path).no_confidence == ""
    shutil.rmtree(tmp_path / "animals")
    shutil.rmtree(Path(fixmatch.settings.cache_dir) / "images")
    run_before = content_of(fixmatch.path)
    pd.testing.assert_frame_equal(Predictor.load(fixmatch.path)([picture]), before)
    assert content_of(fixmatch.path) == run_before
    assert before["class"].item() in ("cat", "dog")
    assert "the threshold depends on the labelled images" in Predictor.load(adamatch.path).no_confidence


@pytest.fixture
def folder(pair: tuple[FinishedRun, FinishedRun], tmp_path: Path) -> Path:
    """Nested folders with intact images, an empty file, a truncated image and a text file."""
    inner = tmp_path / "images" / "inner"
    inner.mkdir(parents=True)
    pictures = [as_picture(image) for image in pixels_of(pair[0], 3)]
    pictures[0].save(tmp_path / "images" / "a.png")
    pictures[1].convert("L").save(inner / "b.JPG", format="jpeg")
    (inner / "c.png").write_bytes(b"")
    buffer = BytesIO()
    pictures[2].resize((200, 200)).save(buffer, format="jpeg")
    (inner / "d.jpg").write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    (inner / "notes.txt").write_text("no image")
    (inner / "e.png").symlink_to("nowhere")
    return tmp_path / "images"


def test_a_corrupt_image_is_a_row_with_the_problem(pair: tuple[FinishedRun, FinishedRun], folder: Path) -> None:
    frame = Predictor.load(pair[0].path)(image_files([folder]))
    assert [Path(name).name for name in frame["image"]] == ["a.png", "b.JPG", "c.png", "d.jpg", "e.png"]
    assert frame["problem"].tolist()[:3] == ["", "", "the file is empty"]
    assert "truncated" in frame["problem"][3]
    assert frame["problem"][4] == "cannot be read: no such file"
    assert frame["class"].isna().tolist() == [False, False, True, True, True]


def test_the_command_writes_a_csv_or_a_table(
    pair: tuple[FinishedRun, FinishedRun], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", "--run", str(pair[0].path)]
    process = Forked(*words, str(folder), "--out", "out.csv", cwd=tmp_path)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "5 images, 3 of which could not be read" in output
    frame = pd.read_csv(tmp_path / "out.csv")
    assert list(frame.columns) == ["image", "class", "probability", "confident", "problem"]
    assert len(frame) == 5
    arguments = parser().parse_args([*words, str(folder / "a.png")])
    arguments.call(arguments)
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["image", "class", "probability", "confident", "problem"]
    assert table[1].split()[0] == str(folder / "a.png")


def test_paths_without_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no\.png: no such file or folder"):
        image_files([tmp_path / "no.png"])
    with pytest.raises(UserError, match="contains no images"):
        image_files([tmp_path])
