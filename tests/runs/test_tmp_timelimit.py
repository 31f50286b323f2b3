from tests.runs.test_slurm import slurm, sweep, wait_for, said  # noqa
def test_tl(slurm, tmp_path, cache_dir):
    flags = ("--launcher", "slurm", "--time", "5", "--save_dir", "runs", "--device", "cpu", "--algorithms", "supervised", "--targets", "pen", "--batch_size", "6", "--labels_per_class", "5", "--num_train_iter", "200000", "--num_eval_iter", "100000", "--checkpoint_every", "50000", "--cache_dir", str(cache_dir), "--flip", "false")
    print(sweep(*flags, cwd=tmp_path))
    f = tmp_path / "runs/digits_mini/5lpc/supervised/pen/seed1"
    wait_for(lambda: (f / "log.txt").exists() and "going on after" in (f / "log.txt").read_text(), 1500)
    print((f / "log.txt").read_text(), (f / "console.txt").read_text())
    print(said("squeue"))
    import glob
    for p in glob.glob(str(tmp_path / "runs/slurm/*.out")): print(open(p).read())
    assert False
