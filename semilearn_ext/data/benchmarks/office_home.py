"""OfficeHome: Venkateswara et al., "Deep Hashing Network for Unsupervised Domain Adaptation" (CVPR 2017)."""

from __future__ import annotations

from pathlib import Path

from semilearn_ext.data.layouts import Tree, domain_class_tree
from semilearn_ext.data.specs import ImageTreeSpec


def recognise(spec: ImageTreeSpec, root: Path) -> Tree | None:
    return domain_class_tree(root, spec.domains, order=_folder_name)


def _folder_name(name: str) -> str:
    """The sort key of a class. The released code sorts by folder name, where capitals come first: TV before Table."""
    return "TV" if name == "tv" else name.capitalize()


OFFICE_HOME = ImageTreeSpec(
    name="office_home",
    title="OfficeHome",
    about="65 classes: art, clipart, product, real_world",
    paper="https://arxiv.org/abs/1706.07522",
    domains=("art", "clipart", "product", "real_world"),
    num_classes=65,
    in_paper=True,
    folders=("office_home_dg", "office_home", "OfficeHomeDataset", "OfficeHomeDataset_10072016"),
    layouts=(
        "office_home_dg/<domain>/{train,val}/<class>/*",
        "OfficeHomeDataset/{Art,Clipart,Product,Real World}/<class>/*",
    ),
    recognise=recognise,
    counts={"art": 2427, "clipart": 4365, "product": 4439, "real_world": 4357},
    splits_folder="splits_ssdg",
    hub="flwrlabs/office-home",
)
