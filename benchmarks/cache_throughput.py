"""How close caching comes to the speed of the backbone alone.

    python -m benchmarks.cache_throughput [--models vit_small_patch16_224 vit_large_patch16_224] [--seconds 5]
                                          [--views 7] [--rounds 10] [--device auto] [--compile auto] [--decode auto]

Real JPEGs of about 500 × 375 (crops of the two photographs that scikit-learn ships), with labels of ImageNet-21k,
are packed into tars; the backbones have random weights and a class head of 21,843 classes. Then, in turns within one
run and on the same threads, each for about ``--seconds``:

* ours: read, decode once, make all views, forward, scores of the class head, write the store and its commit record;
* forward only: as many views through the same backbone in batches of the same size, from tensors that lie ready on its
  device; before and after each of the others, so that a machine that slows down slows both;
* one view at a time: the same cache code for one view, so that every image is decoded for each view.

Rates are views/s over all rounds together; ``ratio`` is ours over forward only, ``one_view_at_a_time_ratio`` ours over
one view at a time, ``ratios`` that of each round. Many short rounds are worth more than a few long ones where others
share the machine. The last line is JSON; its top level is the first model, ``models`` has all.
"""

if __name__ == "__main__":
    from benchmarks._cache_throughput import main

    main(str(__doc__))
