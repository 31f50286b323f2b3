"""Datasets, label splits, image caches, views and batches. ``SPECS`` lists the datasets and does not import torch."""

from semilearn_ext.data.benchmarks.digits_dg import DIGITS_DG
from semilearn_ext.data.benchmarks.digits_mini import DIGITS_MINI
from semilearn_ext.data.benchmarks.folder import FOLDER
from semilearn_ext.data.benchmarks.mini_domainnet import MINI_DOMAINNET
from semilearn_ext.data.benchmarks.office_home import OFFICE_HOME
from semilearn_ext.data.benchmarks.pacs import PACS

SPECS = (DIGITS_MINI, PACS, OFFICE_HOME, DIGITS_DG, MINI_DOMAINNET, FOLDER)

__all__ = ["SPECS"]
