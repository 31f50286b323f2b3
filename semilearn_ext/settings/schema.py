"""Every setting once: its type, default, help, group, and whether it is scientific.

Names are USB's wherever USB has one. A setting is scientific when another value means another experiment;
paths, devices and the like are not (see ``fingerprint``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from semilearn_ext.names import check_folder_name, check_name

GROUPS: dict[str, str] = {
    "method": "what is trained",
    "data": "what it is trained on",
    "views": "how images are augmented",
    "network": "the network",
    "schedule": "for how long",
    "optimizer": "how the weights move",
    "machine": "where it runs",
    "records": "what is written",
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
    """``check(word, where)`` refuses words that cannot become folders."""
    about = {"group": group, "help": help, "scientific": scientific, "choices": choices, "check": check}
    return field(
        default=default, metadata={**about, "minimum": minimum, "maximum": maximum, "above": above, "below": below}
    )


@dataclass(frozen=True)
class Settings:
    """One run, or (with ``target_domain: all``) one run per target, fully described."""

    algorithm: str = key(
        "fixmatch", "method", "base algorithm and plug-ins: fixmatch, fixmatch_upcsc (all of them: ssdg list)"
    )
    variant: str = key(
        "",
        "method",
        "name of a variation of the method, for folders and tables",
        scientific=False,
        check=check_name,
    )
    extend: tuple[str, ...] = key(
        (), "method", "Python files that add plug-ins, algorithms, datasets or networks", scientific=False
    )
    step: str = key(
        "usb",
        "method",
        "training step: USB's, or reference, the SSDG benchmark's (for erm, fixmatch and stylematch)",
        choices=("usb", "reference"),
    )
    ulb_loss_ratio: float = key(1.0, "method", "weight of the unlabelled loss", minimum=0)
    plugin_weight: float = key(
        1.0, "method", "factor on the losses of all plug-ins, on top of their own weights", minimum=0
    )
    use_cat: bool = key(True, "method", "one forward pass per step for all views, where the algorithm allows it")
    ema_m: float = key(0.999, "method", "momentum of the averaged weights, where they are used", minimum=0, below=1)
    eval_with_ema: bool = key(False, "method", "evaluate the averaged weights (the paper evaluates the plain ones)")
    average: str = key(
        "both",
        "method",
        "averages of the weights that are evaluated beside the last ones: ema, exponential over all of training; swa, "
        "uniform over its end, with batch norm's statistics re-estimated",
        scientific=False,
        choices=("both", "ema", "swa", "none"),
    )
    average_decay: float = key(0.999, "method", "decay of ema per step", minimum=0, below=1)
    average_start: float = key(0.5, "method", "fraction of training after which swa begins", minimum=0, below=1)
    average_eval: str = key(
        "last",
        "method",
        "evaluate these averages at the last evaluation only, or at every one",
        scientific=False,
        choices=("last", "every"),
    )

    dataset: str = key("digits_mini", "data", "the dataset (all of them: ssdg list)", check=check_name)
    data_dir: str = key("data", "data", "folder that holds the datasets", scientific=False)
    dataset_name: str = key(
        "",
        "data",
        "name of your own images (dataset: folder), for records and tables; empty: that of their folder",
        scientific=False,
    )
    cache_dir: str = key(
        "~/.cache/semilearn_ext", "data", "folder for decoded images and generated data", scientific=False
    )
    cache: str = key(
        "memmap",
        "data",
        "keep decoded images in one file with checksums, or decode every image each time",
        scientific=False,
        choices=("memmap", "none"),
    )
    on_bad_image: str = key("error", "data", "a corrupt image stops the run, or is skipped", choices=("error", "skip"))
    split_file: str = key(
        "",
        "data",
        "JSON file that says which images are labelled; {target} and {seed} are filled in",
        scientific=False,
    )
    splits: str = key(
        "ours",
        "data",
        "label splits drawn here, or published: the benchmark's own files, in splits_ssdg beside its images",
        choices=("ours", "published"),
    )
    few_labels: str = key(
        "auto",
        "data",
        "a class with fewer training images than labels_per_class: an error, or take_all: all of them are labelled; "
        "auto: take_all for mini_domainnet, as in the released code, error elsewhere",
        choices=("auto", "error", "take_all"),
    )
    target_domain: str = key(
        "all",
        "data",
        "the held-out test domain, or all: one run per domain",
        scientific=False,
        check=check_folder_name,
    )
    source_domains: tuple[str, ...] = key((), "data", "domains to train on; empty: all but the target")
    labels_per_class: int = key(10, "data", "labelled images per class and source domain", minimum=1, maximum=10**6)
    seed: int = key(
        1,
        "data",
        "fixes the labelled images, their order, the views and the initial weights",
        scientific=False,
        minimum=0,
        maximum=2**32 - 1,
    )
    batch_size: int = key(48, "data", "labelled images per step, over all source domains", minimum=1, maximum=10**6)
    uratio: int = key(1, "data", "unlabelled images per step, as a multiple of batch_size", minimum=1, maximum=10**4)

    img_size: int = key(32, "views", "side of the square that the network sees, in pixels", minimum=8, maximum=4096)
    flip: bool = key(True, "views", "flip images left to right at random")
    cutout: int = key(16, "views", "side of the square cut out of the strong view, in pixels", minimum=0, maximum=4096)
    cutout_color: str = key(
        "black",
        "views",
        "colour of that square: black, as in the released code, or mean: the mean colour",
        choices=("black", "mean"),
    )
    test_view: str = key(
        "center",
        "views",
        "images at test: center resizes the shorter side and crops the centre, as in the released code; squash resizes "
        "the whole image to a square, as in training",
        choices=("center", "squash"),
    )

    adain_dir: str = key(
        "weights/adain",
        "views",
        "folder with AdaIN's decoder.pth and vgg_normalised.pth, for the style view of stylematch",
        scientific=False,
    )

    net: str = key("cnn", "network", "the network (all of them: ssdg list)")
    classifier_bias: bool = key(True, "network", "give the classifier a bias (the released UPCSC on FixMatch has none)")
    pretrained: bool = key(False, "network", "start from pretrained weights")
    pretrain_path: str = key(
        "",
        "network",
        "file with these weights; empty: the network's own (resnet18: torchvision's ImageNet weights, from TORCH_HOME)",
        scientific=False,
    )

    epoch: int = key(20, "schedule", "passes over the unlabelled images", minimum=1, maximum=10**6)
    num_train_iter: int = key(
        0, "schedule", "stop after this many steps; 0: as many as the epochs have", minimum=0, maximum=10**9
    )
    num_eval_iter: int = key(0, "schedule", "steps between two evaluations; 0: one per epoch", minimum=0, maximum=10**9)

    optim: str = key("SGD", "optimizer", "the optimizer", choices=("SGD", "AdamW"))
    lr: float = key(0.003, "optimizer", "learning rate of the backbone", minimum=0)
    lr_classifier: float | None = key(
        None, "optimizer", "learning rate of the classifier; none: that of the backbone", minimum=0
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
    clip_grad: float = key(0.0, "optimizer", "maximum norm of the gradient; 0: no clipping", minimum=0)

    device: str = key(
        "auto",
        "machine",
        "auto takes CUDA, then MPS, then CPU",
        scientific=False,
        choices=("auto", "cuda", "mps", "cpu"),
    )
    precision: str = key(
        "auto",
        "machine",
        "numbers in the forward pass: auto takes bf16 on a CUDA GPU (fp16 with a gradient scaler on one without bf16), "
        "together with channels-last memory, cuDNN autotuning and TF32 convolutions, and float32 elsewhere",
        scientific=False,
        choices=("auto", "float32", "bf16", "fp16"),
    )
    channels_last: bool = key(
        False, "machine", "channels-last memory format; always on where a CUDA GPU computes in bf16", scientific=False
    )
    views_on: str = key(
        "auto",
        "machine",
        "where images are kept and augmented: in the memory of the device, if they fit there, or by the loader "
        "processes on the cpu; auto: device on a CUDA GPU",
        scientific=False,
        choices=("auto", "cpu", "device"),
    )
    compile: bool = key(False, "machine", "torch.compile the network", scientific=False)
    num_workers: int = key(
        0,
        "machine",
        "number of loader processes; 0: load in the main process",
        scientific=False,
        minimum=0,
        maximum=256,
    )
    eval_batch_size: int = key(
        0,
        "machine",
        "images per forward pass at test time; 0: as many as fit easily into the GPU's free memory, 256 on a CPU",
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
        0, "records", "steps between two checkpoints; 0: one per evaluation", scientific=False, minimum=0, maximum=10**9
    )
    use_tensorboard: bool = key(False, "records", "write TensorBoard files into the run folder", scientific=False)
    use_wandb: bool = key(False, "records", "USB's Weights & Biases hook", scientific=False)
    use_aim: bool = key(False, "records", "USB's Aim hook", scientific=False)
    progress: bool = key(True, "records", "show progress bars on a terminal", scientific=False)
    dry_run: bool = key(False, "records", "print the plan and stop", scientific=False)

    base: str = "fixmatch"
    """The base algorithm that ``algorithm`` names."""
    plugins: tuple[str, ...] = ()
    """The plug-ins that ``algorithm`` names."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of the base and its plug-ins, all of them, by name."""
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Where each setting that is not a default came from: a file's path or the command line."""

    @property
    def method(self) -> str:
        """The name of its folder: the algorithm, and the variant behind ``--`` if there is one."""
        return f"{self.algorithm}--{self.variant}" if self.variant else self.algorithm

    def where(self, name: str) -> str:
        """``"file: name"`` for error messages."""
        return f"{self.origins.get(name, 'default')}: {name}"

    def flat(self) -> dict[str, Any]:
        """All settings and options as one plain mapping, the form of a config file."""
        plain: dict[str, Any] = {}
        for name in KEYS:
            value = getattr(self, name)
            plain[name] = list(value) if isinstance(value, tuple) else value
        return {**plain, **self.options}


KEYS = {f.name: f for f in fields(Settings) if f.metadata}
TYPES: dict[str, Any] = {name: hint for name, hint in get_type_hints(Settings).items() if name in KEYS}
