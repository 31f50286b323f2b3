"""Every setting once: its type, default, help, group, and whether it is scientific.

Names are USB's wherever USB has one. A setting is scientific when another value means another experiment;
paths, devices and the like are not (see ``fingerprint``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, get_type_hints

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
) -> Any:
    return field(
        default=default,
        metadata={
            "group": group,
            "help": help,
            "scientific": scientific,
            "choices": choices,
            "minimum": minimum,
        },
    )


@dataclass(frozen=True)
class Settings:
    """One run, or (with ``target_domain: all``) one run a target, fully described."""

    algorithm: str = key("fixmatch", "method", "a USB algorithm, or one of ours")
    variant: str = key("", "method", "a name for a variation of it, for folders and tables", scientific=False)
    extend: tuple[str, ...] = key((), "method", "Python files with plug-ins of your own", scientific=False)
    step: str = key(
        "usb",
        "method",
        "USB's step, or reference: the SSDG benchmark's, domain by domain, for fixmatch and stylematch",
        choices=("usb", "reference"),
    )
    ulb_loss_ratio: float = key(1.0, "method", "weight of the unlabelled loss", minimum=0)
    plugin_weight: float = key(1.0, "method", "factor on the losses of all plug-ins", minimum=0)
    use_cat: bool = key(True, "method", "one forward pass a step for all views, where the algorithm allows it")
    ema_m: float = key(0.999, "method", "momentum of the averaged weights, where they are used", minimum=0)
    eval_with_ema: bool = key(False, "method", "test the averaged weights (the paper tests the plain ones)")

    dataset: str = key("digits_mini", "data", "the benchmark")
    data_dir: str = key("data", "data", "folder that holds the benchmarks", scientific=False)
    cache_dir: str = key("~/.cache/semilearn_ext", "data", "folder for what is made once and kept", scientific=False)
    cache: str = key(
        "memmap",
        "data",
        "keep decoded images in one memory-mapped file, or decode them anew every time",
        scientific=False,
        choices=("memmap", "none"),
    )
    on_bad_image: str = key("error", "data", "a broken image ends the run, or is left out", choices=("error", "skip"))
    split_file: str = key(
        "",
        "data",
        "JSON that says which images are labelled; {target} and {seed} are filled in",
        scientific=False,
    )
    target_domain: str = key("all", "data", "the domain left out and tested, or all: one run each", scientific=False)
    source_domains: tuple[str, ...] = key((), "data", "train on these only; empty: all but the target")
    labels_per_class: int = key(10, "data", "labelled images of each class in each source domain", minimum=1)
    seed: int = key(1, "data", "fixes the labels, the order, the views and the weights", scientific=False, minimum=0)
    batch_size: int = key(48, "data", "labelled images a step, over all source domains", minimum=1)
    uratio: int = key(1, "data", "unlabelled images a step, as a multiple of batch_size", minimum=1)

    img_size: int = key(32, "views", "side of the square the network sees, pixels", minimum=8)
    flip: bool = key(True, "views", "flip images left to right at random")
    cutout: int = key(16, "views", "side of the square cut out of the strong view, pixels", minimum=0)

    adain_dir: str = key(
        "weights/adain",
        "views",
        "folder with AdaIN's decoder.pth and vgg_normalised.pth, for the style view of stylematch",
        scientific=False,
    )

    net: str = key("cnn", "network", "cnn, resnet18, or one of USB's image networks")
    pretrained: bool = key(False, "network", "start from ImageNet weights")
    pretrain_path: str = key(
        "", "network", "file with those weights; empty: torchvision's, from TORCH_HOME", scientific=False
    )

    epoch: int = key(20, "schedule", "passes over the unlabelled images", minimum=1)
    num_train_iter: int = key(0, "schedule", "stop after so many steps; 0: as many as the epochs have", minimum=0)
    num_eval_iter: int = key(0, "schedule", "steps between two evaluations; 0: one an epoch", minimum=0)

    optim: str = key("SGD", "optimizer", "the optimizer", choices=("SGD", "AdamW"))
    lr: float = key(0.003, "optimizer", "learning rate of the backbone", minimum=0)
    lr_classifier: float | None = key(None, "optimizer", "of the classifier; none: as the backbone", minimum=0)
    lr_plugin: float = key(0.0005, "optimizer", "of modules that plug-ins bring", minimum=0)
    momentum: float = key(0.9, "optimizer", "SGD's momentum", minimum=0)
    nesterov: bool = key(False, "optimizer", "SGD's Nesterov variant (USB has it on)")
    weight_decay: float = key(5e-4, "optimizer", "weight decay", minimum=0)
    decay_norm_bias: bool = key(True, "optimizer", "decay norm layers and biases too (USB does not)")
    lr_schedule: str = key(
        "cosine",
        "optimizer",
        "cosine to zero, USB's cosine (7/16 of a half wave), or constant",
        choices=("cosine", "usb_cosine", "constant"),
    )
    lr_step: str = key(
        "epoch",
        "optimizer",
        "change the learning rate every epoch or iteration",
        choices=("epoch", "iteration"),
    )
    num_warmup_iter: int = key(0, "optimizer", "steps of linear warm-up", minimum=0)
    clip_grad: float = key(0.0, "optimizer", "largest norm of the gradient; 0: no clipping", minimum=0)

    device: str = key(
        "auto",
        "machine",
        "auto takes CUDA, then MPS, then CPU",
        scientific=False,
        choices=("auto", "cuda", "mps", "cpu"),
    )
    amp: bool = key(False, "machine", "mixed precision: bfloat16 where the hardware has it", scientific=False)
    channels_last: bool = key(False, "machine", "channels-last memory format", scientific=False)
    compile: bool = key(False, "machine", "torch.compile the network", scientific=False)
    num_workers: int = key(0, "machine", "processes that prepare batches; 0: this one", scientific=False, minimum=0)
    eval_batch_size: int = key(256, "machine", "images a forward pass at test time", scientific=False, minimum=1)

    save_dir: str = key("runs", "records", "folder of all runs", scientific=False)
    overwrite: bool = key(False, "records", "throw away what lies in the run's folder and start over", scientific=False)
    num_log_iter: int = key(
        50, "records", "steps between two updates of TensorBoard, W&B or Aim", scientific=False, minimum=1
    )
    checkpoint_every: int = key(
        0, "records", "steps between two checkpoints; 0: one an evaluation", scientific=False, minimum=0
    )
    use_tensorboard: bool = key(False, "records", "write TensorBoard files into the run's folder", scientific=False)
    use_wandb: bool = key(False, "records", "USB's Weights & Biases hook", scientific=False)
    use_aim: bool = key(False, "records", "USB's Aim hook", scientific=False)
    progress: bool = key(True, "records", "show progress bars on a terminal", scientific=False)
    dry_run: bool = key(False, "records", "print the resolved plan and stop", scientific=False)

    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The algorithm's own options, all of them, by name."""
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    """Where each setting that is not a default came from: a file's path or the command line."""

    @property
    def method(self) -> str:
        """What folders and tables call it: the algorithm, and the variant if there is one."""
        return f"{self.algorithm}_{self.variant}" if self.variant else self.algorithm

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
