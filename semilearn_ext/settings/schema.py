"""The declaration of every setting: its type, default, help, group, and whether it is scientific.

Names are those of USB wherever it has one. A setting is scientific if a different value means a different experiment;
paths, devices and the like are not scientific (see ``fingerprint``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from semilearn_ext.names import check_folder_name, check_name

GROUPS: dict[str, str] = {
    "method": "algorithm, plug-ins and training step",
    "data": "dataset, labels and batches",
    "views": "image size and augmentation",
    "network": "architecture and initial weights",
    "schedule": "length of training and evaluations",
    "optimizer": "optimizer and learning rates",
    "machine": "device, precision and processes",
    "records": "output, logs and checkpoints",
}


def key(
    default: Any,
    group: str,
    help: str,
    *,
    scientific: bool = True,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    check: Callable[[str, str], str] | None = None,
) -> Any:
    """Declare a setting. ``check(word, where)`` raises an error for words that cannot be folder names."""
    about = {"group": group, "help": help, "scientific": scientific, "choices": choices, "check": check}
    return field(
        default=default, metadata={**about, "minimum": minimum, "maximum": maximum, "above": above, "below": below}
    )


@dataclass(frozen=True)
class Settings:
    """The complete settings of one run or, with ``target_domain: all``, of one run per target domain."""

    algorithm: str = key(
        "fixmatch", "method", "base algorithm and plug-ins, such as fixmatch or fixmatch_upcsc (list all: ssdg list)"
    )
    variant: str = key(
        "",
        "method",
        "name of a variant of the method, for folders and tables",
        scientific=False,
        check=check_name,
    )
    extend: tuple[str, ...] = key(
        (), "method", "Python files that add plug-ins, algorithms, datasets or networks", scientific=False
    )
    step: str = key(
        "usb",
        "method",
        "training step: that of USB, or that of the SSDG benchmark (reference), which only some algorithms have (see: "
        "ssdg list)",
        choices=("usb", "reference"),
    )
    ulb_loss_ratio: float = key(1.0, "method", "weight of the unlabelled loss", minimum=0)
    plugin_weight: float = key(
        1.0, "method", "factor on the losses of all plug-ins, in addition to their own weights", minimum=0
    )
    use_cat: bool = key(True, "method", "use one forward pass per step for all views, if the algorithm supports it")
    ema_m: float = key(
        0.999, "method", "momentum of the averaged weights, for methods that use them", minimum=0, below=1
    )
    eval_with_ema: bool = key(False, "method", "evaluate the averaged weights (the paper evaluates the last ones)")
    average: str = key(
        "both",
        "method",
        "weight averages to evaluate in addition to the last weights: ema, an exponential average over all of "
        "training; swa, a uniform average over the end of training, with re-estimated batch norm statistics",
        scientific=False,
        choices=("both", "ema", "swa", "none"),
    )
    average_decay: float = key(0.999, "method", "decay per step of ema", minimum=0, below=1)
    average_start: float = key(0.5, "method", "fraction of training after which swa starts", minimum=0, below=1)
    average_eval: str = key(
        "last",
        "method",
        "evaluate these averages only at the last evaluation, or at every evaluation",
        scientific=False,
        choices=("last", "every"),
    )

    dataset: str = key("digits_mini", "data", "the dataset (list all: ssdg list)", check=check_name)
    data_dir: str = key("data", "data", "folder that contains the datasets", scientific=False)
    dataset_name: str = key(
        "",
        "data",
        "name of your own images (dataset: folder), for records and tables (default: the name of their folder)",
        scientific=False,
    )
    cache_dir: str = key(
        "~/.cache/semilearn_ext", "data", "folder for decoded images and generated data", scientific=False
    )
    cache: str = key(
        "memmap",
        "data",
        "cache decoded images in one file with checksums, or decode every image on each access",
        scientific=False,
        choices=("memmap", "none"),
    )
    on_bad_image: str = key("error", "data", "stop at a corrupt image, or skip it", choices=("error", "skip"))
    split_file: str = key(
        "",
        "data",
        "JSON file that lists the labelled images; {target} and {seed} are filled in",
        scientific=False,
    )
    splits: str = key(
        "ours",
        "data",
        "label splits drawn by this package, or those published with the benchmark (in its folder splits_ssdg)",
        choices=("ours", "published"),
    )
    few_labels: str = key(
        "auto",
        "data",
        "for a class with fewer training images than labels_per_class: error, or take_all to label all of them; auto "
        "is the choice of the released code for the dataset",
        choices=("auto", "error", "take_all"),
    )
    target_domain: str = key(
        "all",
        "data",
        "the held-out test domain, or all for one run per domain",
        scientific=False,
        check=check_folder_name,
    )
    source_domains: tuple[str, ...] = key((), "data", "domains to train on (default: all except the target)")
    labels_per_class: int = key(10, "data", "labelled images per class and source domain", minimum=1, maximum=10**6)
    seed: int = key(
        1,
        "data",
        "seed for the choice of labelled images, the order of images, the views and the initial weights",
        scientific=False,
        minimum=0,
        maximum=2**32 - 1,
    )
    batch_size: int = key(48, "data", "labelled images per step, over all source domains", minimum=1, maximum=10**6)
    uratio: int = key(1, "data", "unlabelled images per step, as a multiple of batch_size", minimum=1, maximum=10**4)

    img_size: int = key(32, "views", "side of the network's square input, in pixels", minimum=8, maximum=4096)
    flip: bool = key(True, "views", "flip images left to right at random")
    cutout: int = key(16, "views", "side of the square cut out of the strong view, in pixels", minimum=0, maximum=4096)
    cutout_color: str = key(
        "black",
        "views",
        "colour of that square: black, as in the released code, or the mean colour",
        choices=("black", "mean"),
    )
    test_view: str = key(
        "center",
        "views",
        "test images: center resizes the shorter side and crops the centre, as in the released code; squash resizes "
        "the whole image to a square, as in training",
        choices=("center", "squash"),
    )

    adain_dir: str = key(
        "weights/adain",
        "views",
        "folder with AdaIN's decoder.pth and vgg_normalised.pth, for the style view of stylematch",
        scientific=False,
    )

    net: str = key("cnn", "network", "the network (list all: ssdg list)")
    classifier_bias: bool = key(True, "network", "give the classifier a bias (the released UPCSC on FixMatch has none)")
    pretrained: bool = key(False, "network", "start from pretrained weights")
    pretrain_path: str = key(
        "",
        "network",
        "file with pretrained weights (default: those of the network, see: ssdg list)",
        scientific=False,
    )

    epoch: int = key(20, "schedule", "passes over the unlabelled images", minimum=1, maximum=10**6)
    num_train_iter: int = key(
        0, "schedule", "stop after this many steps; 0 to train for all epochs", minimum=0, maximum=10**9
    )
    num_eval_iter: int = key(
        0, "schedule", "steps between two evaluations; 0 for one per epoch", minimum=0, maximum=10**9
    )

    optim: str = key("SGD", "optimizer", "the optimizer", choices=("SGD", "AdamW"))
    lr: float = key(0.003, "optimizer", "learning rate of the backbone", minimum=0)
    lr_classifier: float | None = key(
        None, "optimizer", "learning rate of the classifier; none for that of the backbone", minimum=0
    )
    lr_plugin: float = key(0.0005, "optimizer", "learning rate of the plug-ins' own parameters", minimum=0)
    momentum: float = key(0.9, "optimizer", "momentum of SGD", minimum=0, below=1)
    nesterov: bool = key(False, "optimizer", "Nesterov momentum (USB uses it)")
    weight_decay: float = key(5e-4, "optimizer", "weight decay", minimum=0)
    decay_norm_bias: bool = key(True, "optimizer", "apply weight decay to norm layers and biases too (USB does not)")
    lr_schedule: str = key(
        "cosine",
        "optimizer",
        "cosine to zero, USB's cosine (7/16 of a half period), or constant",
        choices=("cosine", "usb_cosine", "constant"),
    )
    lr_step: str = key(
        "epoch",
        "optimizer",
        "change the learning rate every epoch or iteration",
        choices=("epoch", "iteration"),
    )
    num_warmup_iter: int = key(0, "optimizer", "number of linear warm-up steps", minimum=0, maximum=10**9)
    clip_grad: float = key(0.0, "optimizer", "maximum norm of the gradient; 0 for no clipping", minimum=0)

    device: str = key(
        "auto",
        "machine",
        "device; auto is the first available of CUDA, MPS and CPU",
        scientific=False,
        choices=("auto", "cuda", "mps", "cpu"),
    )
    precision: str = key(
        "auto",
        "machine",
        "data type of the forward pass; on a CUDA GPU, auto is bf16 (or fp16 with a gradient scaler, without bf16 "
        "support) with channels-last memory, cuDNN autotuning and TF32 convolutions; elsewhere it is float32",
        scientific=False,
        choices=("auto", "float32", "bf16", "fp16"),
    )
    channels_last: bool = key(
        False, "machine", "channels-last memory format; always used in half precision on a CUDA GPU", scientific=False
    )
    views_on: str = key(
        "auto",
        "machine",
        "where images are stored and augmented: in the memory of the device, if they fit there, or by the loader "
        "processes on the CPU; auto is device on a CUDA GPU and cpu elsewhere",
        scientific=False,
        choices=("auto", "cpu", "device"),
    )
    compile: bool = key(False, "machine", "compile the network with torch.compile", scientific=False)
    num_workers: int = key(
        0,
        "machine",
        "number of loader processes; 0 to load in the main process",
        scientific=False,
        minimum=0,
        maximum=256,
    )
    eval_batch_size: int = key(
        0,
        "machine",
        "images per forward pass at test time; 0 for as many as fit into the GPU's free memory, or 256 on a CPU",
        scientific=False,
        minimum=0,
        maximum=10**6,
    )

    save_dir: str = key("runs", "records", "folder of all runs", scientific=False)
    overwrite: bool = key(False, "records", "delete the existing run and start over", scientific=False)
    num_log_iter: int = key(
        50,
        "records",
        "steps between two updates of TensorBoard, W&B or Aim",
        scientific=False,
        minimum=1,
        maximum=10**9,
    )
    checkpoint_every: int = key(
        0,
        "records",
        "steps between two checkpoints; 0 for one per evaluation",
        scientific=False,
        minimum=0,
        maximum=10**9,
    )
    use_tensorboard: bool = key(False, "records", "log to TensorBoard, in the run folder", scientific=False)
    use_wandb: bool = key(False, "records", "log to Weights & Biases", scientific=False)
    use_aim: bool = key(False, "records", "log to Aim", scientific=False)
    progress: bool = key(True, "records", "show progress bars on a terminal", scientific=False)
    dry_run: bool = key(False, "records", "show the plan without training", scientific=False)

    base: str = "fixmatch"
    """The base algorithm of ``algorithm``."""
    plugins: tuple[str, ...] = ()
    """The plug-ins of ``algorithm``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """All options of the base and its plug-ins, by name."""
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The origin of each setting that is not a default: the path of a file, or the command line."""

    @property
    def method(self) -> str:
        """The folder name of the method: the algorithm and, if there is one, the variant after ``--``."""
        return f"{self.algorithm}--{self.variant}" if self.variant else self.algorithm

    def where(self, name: str) -> str:
        """``"file: name"`` for error messages."""
        return f"{self.origins.get(name, 'default')}: {name}"

    def flat(self) -> dict[str, Any]:
        """All settings and options as one plain mapping, as in a config file."""
        plain: dict[str, Any] = {}
        for name in KEYS:
            value = getattr(self, name)
            plain[name] = list(value) if isinstance(value, tuple) else value
        return {**plain, **self.options}


KEYS = {f.name: f for f in fields(Settings) if f.metadata}
TYPES: dict[str, Any] = {name: hint for name, hint in get_type_hints(Settings).items() if name in KEYS}
