"""Package metadata. The pinned versions work together: torchaudio, which USB needs, refuses a torch that was built for
another CUDA version, and 2.11 is its newest release."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = next(
    line.split('"')[1]
    for line in (HERE / "semilearn_ext" / "__init__.py").read_text().splitlines()
    if line.startswith("__version__")
)

setup(
    name="semilearn_ext",
    version=VERSION,
    description="Semi-supervised domain generalization for USB: UPCSC and related methods, from config to tables",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.10",
    # config/ stays at the top of the repository and is installed as part of the package.
    packages=[*find_packages(include=["semilearn_ext", "semilearn_ext.*"]), "semilearn_ext.config"],
    package_dir={"semilearn_ext.config": "config"},
    package_data={
        "semilearn_ext.config": ["ssdg/**/*.yaml"],
        "semilearn_ext.nets": ["resnet_mini.pt"],
        "semilearn_ext.report": ["paper/*.csv", "page_files/*"],
    },
    entry_points={"console_scripts": ["ssdg = semilearn_ext.__main__:console"]},
    install_requires=[
        "torch==2.11.*",
        "torchvision==0.26.*",
        "torchaudio==2.11.*",
        "semilearn==0.3.2",
        "numpy>=1.24.4",
        "pyyaml>=6.0",
        "scikit-learn>=1.3",
        "threadpoolctl>=3.1",
        "scipy>=1.15",
        "pandas>=2.0",
        "matplotlib>=3.7",
        "tqdm>=4.64",
        "jinja2>=3",
    ],
    extras_require={
        "test": [
            *("pytest>=8", "hypothesis>=6.100", "pyarrow>=14", "playwright>=1.45", "submitit>=1.5"),
            *("ruff==0.17.*", "mypy==2.4.*", "types-PyYAML"),
        ],
        "slurm": ["submitit>=1.5"],
        "hub": ["huggingface_hub>=0.23", "pyarrow>=14"],
    },
)
