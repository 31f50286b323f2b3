"""The spec of digits_mini. Its images are drawn by :mod:`semilearn_ext.data.digits_generator`."""

from semilearn_ext.specs import DatasetSpec

DIGITS_MINI = DatasetSpec(
    name="digits_mini",
    title="digits_mini",
    about="10 digits in four looks: pen, texture, street, print; 32x32 pixels, included in the package",
    domains=("pen", "texture", "street", "print"),
    num_classes=10,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    image_size=32,
    flip=False,
    implementation="semilearn_ext.data.digits_mini:load",
)
