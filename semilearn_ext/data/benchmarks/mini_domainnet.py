"""miniDomainNet: 126 classes of DomainNet (Peng et al., ICCV 2019), chosen by Zhou et al., "Domain Adaptive Ensemble
Learning" (TIP 2021).

The appendix of the UPCSC paper mentions 345 classes, but its code and its label counts use 126.
"""

from __future__ import annotations

from pathlib import Path

from semilearn_ext.data.layouts import Tree, find_domains, listed_tree
from semilearn_ext.data.specs import ImageTreeSpec


def recognise(spec: ImageTreeSpec, root: Path) -> Tree | None:
    """Read the images named in the split lists, which the UPCSC README and Dassl put into different folders."""
    if find_domains(root, spec.domains) is None:
        return None
    for folder in (spec.splits_folder, "splits_mini"):
        lists = {
            domain: {"train": root / folder / f"{domain}_train.txt", "val": root / folder / f"{domain}_test.txt"}
            for domain in spec.domains
        }
        if all(file.is_file() for parts in lists.values() for file in parts.values()):
            return listed_tree(root, spec.domains, lists)
    return None


MINI_DOMAINNET = ImageTreeSpec(
    name="mini_domainnet",
    title="miniDomainNet",
    about="126 classes: clipart, painting, real, sketch",
    paper="https://arxiv.org/abs/2003.07325",
    domains=("clipart", "painting", "real", "sketch"),
    num_classes=126,
    in_paper=True,
    folders=("domainnet", "DomainNet", "mini_domainnet"),
    layouts=("domainnet/<domain>/<class>/* with <domain>_{train,test}.txt in domainnet/splits_mini{,_ssdg}/",),
    recognise=recognise,
    counts={"clipart": 18703, "painting": 31202, "real": 65609, "sketch": 24492},
    splits_folder="splits_mini_ssdg",
    few_labels="take_all",
    by_hand=(
        "Download the cleaned archives clipart, painting, real and sketch of DomainNet from its authors' page, "
        "ai.bu.edu/M3SDA, and unpack them into {root}/domainnet/.",
        "Download splits_mini.zip. It is linked in the file DATASETS.md of the repository KaiyangZhou/Dassl.pytorch, "
        "section miniDomainNet. Unpack it so that {root}/domainnet/splits_mini/clipart_train.txt exists.",
    ),
)
