"""USB's quick start with one import and one changed name: FixMatch + UPCSC, tested on a domain that it has not seen.

    python examples/usb_trainer.py [iterations]

Like USB, it needs a GPU, but no download. With fewer than a thousand iterations the accuracy stays close to chance,
because the batch norm of USB's wide ResNets has a momentum of 0.001.
"""

import sys

from semilearn import Trainer, get_algorithm, get_config, get_data_loader, get_net_builder

import semilearn_ext.usb

# Step 1: define the config
settings = {
    "algorithm": "fixmatch_upcsc",  # USB's own FixMatch is "fixmatch"
    "net": "wrn_28_2",
    "dataset": "none",  # not one of USB's
    "epoch": 3,
    "num_train_iter": int(sys.argv[1]) if len(sys.argv) > 1 else 3000,
    "batch_size": 48,
    "save_name": "usb_trainer",
    "gpu": 0,
    "distributed": False,
}
config = get_config({**settings, "num_eval_iter": settings["num_train_iter"] // 3})

# Step 2: create the datasets: train on three domains, with 10 labels per class and domain; test on the fourth
datasets = semilearn_ext.usb.get_datasets(config.algorithm, "street", dataset="digits_mini", flip=False)
datasets.configure(config)
train = [get_data_loader(config, datasets[part], config.batch_size) for part in ("train_lb", "train_ulb")]
held_out = [
    get_data_loader(config, datasets[part], 256, data_sampler=None, drop_last=False) for part in ("eval", "test")
]

# Step 3: create the algorithm, train it, and test it on the target domain
algorithm = get_algorithm(config, get_net_builder(config.net, from_name=False), tb_log=None, logger=None)
trainer = Trainer(config, algorithm)
trainer.fit(*train, held_out[0])
print(f"target domain: {trainer.evaluate(held_out[1])['acc']:.1%}")
