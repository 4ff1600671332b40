package colabcli

import (
	"context"
	"fmt"
	"io"
	"os/exec"
)

// Login lets Google's program ask the person to log in: it runs `colab sessions` on the
// person's terminal, which shows Google's questions and then the VMs of the account. The
// program keeps the login in its own file. Login changes nothing if there is one already.
func (b *Backend) Login(ctx context.Context, in io.Reader, out, errs io.Writer) error {
	program, err := b.program()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, sessions.argv(nil)...)
	cmd.Env = environment(b.cfg.Environ)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	cmd.WaitDelay = pipeDelay
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("log in with `colab sessions`: %w; what it printed is above", err)
	}
	if _, err := b.rows(ctx); err != nil {
		return fmt.Errorf("`colab sessions` ended without an error, but a second call did not list VMs: %w", err)
	}
	return nil
}
