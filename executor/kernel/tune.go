package kernel

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"colabrelay/executor/jupyter"
)

//go:embed tune.py
var tunePy string

// iopubLimit is how many messages the kernel holds for a reader that is behind. It is
// no memory taken ahead; the reader drops, and counts, long before that many of a size
// that matters.
const iopubLimit = 200_000

// tune asks a new kernel to hold more outputs. A kernel of another kind that can't is
// as good as one that was not asked.
func (l *Kernel) tune(ctx context.Context) error {
	_, err := l.Client.Request(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{
		Silent:          true,
		UserExpressions: map[string]string{"tune": strings.ReplaceAll(tunePy, "LIMIT", strconv.Itoa(iopubLimit))},
	})
	if err != nil {
		return fmt.Errorf("tuning the kernel: %w", err)
	}
	return nil
}
