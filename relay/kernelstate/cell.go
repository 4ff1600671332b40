package kernelstate

import (
	"fmt"

	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// mime is the type of the display output that has an operation's report.
const mime = contract.OwnMIME + "state+json"

// progressMIME is the type of the display outputs by which state/progress.py reports At.
const progressMIME = contract.OwnMIME + "state-progress+json"

// Titles of the operations. The first line of a cell starts with "# " and its title.
const (
	saveTitle        = "colab-relay: save state"
	prepareTitle     = "colab-relay: prepare to restore state"
	restoreTitle     = "colab-relay: restore state"
	clearTitle       = "colab-relay: delete files of state"
	keepTitle        = "colab-relay: keep the variables of chunked run"
	restoreKeptTitle = "colab-relay: restore the variables of chunked run"
)

// cell is one operation: a call of a function of state/operate.py in shared/kernelpy.
type cell struct {
	head string // the first line, which list_executions shows
	call kernelpy.Call
}

func (j *job) cell(title, operation string, arguments ...any) cell {
	return cell{
		head: fmt.Sprintf("# %s %q\n", title, j.o.Name),
		call: kernelpy.Call{Function: "state.operate." + operation, Arguments: arguments, MIME: mime, Delivery: kernelpy.Display},
	}
}

// code returns the cell's Python. The same cell always has the same code, because a repeated
// submit must not differ.
func (c cell) code(withPackage bool) string { return c.head + c.call.Code(withPackage) }
