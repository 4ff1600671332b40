# The cell that runs one operation; Go fills in the three names in capitals with literals.
# It is an expression, so that no name of ours is left in the user's namespace, and its
# value is None, so that nothing is shown. It names no builtin, because the user may have
# shadowed each of them: the real ones come from a generator's frame.
(
    lambda builtins, load: (
        builtins["exec"](builtins["compile"](LOAD, "<colab_relay_load>", "exec"), load),  # noqa: F821
        load["run"](SOURCES, QUESTION),  # noqa: F821
    )[1]
)(
    (0 for _ in ()).gi_frame.f_builtins,
    {"__builtins__": (0 for _ in ()).gi_frame.f_builtins},
)
