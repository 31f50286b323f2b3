"""The specs of our networks and of USB's image networks."""

from __future__ import annotations

from semilearn_ext.specs import NetSpec

_USB = {
    "resnet50": ("ResNet-50", "1512.03385"),
    "wrn_28_2": ("WRN-28-2", "1605.07146"),
    "wrn_28_8": ("WRN-28-8", "1605.07146"),
    "wrn_var_37_2": ("WRN-var-37-2", "1605.07146"),
    "vit_base_patch16_224": ("ViT-B/16, 224 px", "2010.11929"),
    "vit_base_patch16_96": ("ViT-B/16, 96 px", "2010.11929"),
    "vit_small_patch16_224": ("ViT-S/16, 224 px", "2010.11929"),
    "vit_small_patch2_32": ("ViT-S/2, 32 px", "2010.11929"),
    "vit_tiny_patch2_32": ("ViT-Ti/2, 32 px", "2010.11929"),
}

RESNET_MINI_SHA256 = "669f2cbc69f7d863d7decd7914410f5945878e9553528ef8398d23346af29463"
"""SHA-256 of the weights that come with the package."""

SPECS = (
    NetSpec(
        name="cnn",
        title="CNN",
        about="four 3x3 convolutions, similar to the network of Digits-DG, 256 features at 32x32 pixels",
        paper="https://arxiv.org/abs/2003.06054",
        implementation="semilearn_ext.nets.cnn:build",
    ),
    NetSpec(
        name="resnet18",
        title="ResNet-18",
        about="torchvision's ResNet-18, 512 features; ImageNet weights with --pretrained",
        paper="https://arxiv.org/abs/1512.03385",
        implementation="semilearn_ext.nets.resnet:build",
        weights="torchvision IMAGENET1K_V1",
    ),
    NetSpec(
        name="resnet_mini",
        title="ResNet-mini",
        about="308,000 parameters, 128 features; included weights, trained on letters, with --pretrained",
        paper="https://arxiv.org/abs/1512.03385",
        implementation="semilearn_ext.nets.resnet_mini:build",
        weights=f"embedded {RESNET_MINI_SHA256[:12]}",
    ),
    *(
        NetSpec(
            name=name,
            title=title,
            about=f"USB's own {title}",
            paper=f"https://arxiv.org/abs/{paper}",
            implementation="semilearn_ext.nets.usb:build",
        )
        for name, (title, paper) in _USB.items()
    ),
)
