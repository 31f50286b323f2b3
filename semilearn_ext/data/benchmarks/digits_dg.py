"""DigitsDG: Zhou et al., "Deep Domain-Adversarial Image Generation for Domain Generalisation" (AAAI 2020)."""

from semilearn_ext.data.specs import ImageTreeSpec

_DOMAINS = ("mnist", "mnist_m", "svhn", "syn")

DIGITS_DG = ImageTreeSpec(
    name="digits_dg",
    title="DigitsDG",
    about="10 digits: mnist, mnist_m, svhn, syn",
    paper="https://arxiv.org/abs/2003.06054",
    domains=_DOMAINS,
    num_classes=10,
    in_paper=True,
    flip=False,
    folders=("digits_dg", "DigitsDG", "digits-dg"),
    layouts=("digits_dg/<domain>/{train,val}/<digit>/*",),
    counts=dict.fromkeys(_DOMAINS, 6000),
    class_counts=dict.fromkeys(_DOMAINS, (600,) * 10),
    splits_folder="splits_ssdg",
    by_hand=(
        "Download digits_dg.zip. It is linked in the file DATASETS.md of the repository KaiyangZhou/Dassl.pytorch, "
        "section Digits-DG.",
        "Unpack it so that {root}/digits_dg/mnist/train/0/ contains images, and likewise for mnist_m, svhn and syn.",
    ),
)
