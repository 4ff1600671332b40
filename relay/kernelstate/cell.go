package kernelstate

import (
	"fmt"

	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// mime is what the kernel's report is displayed as.
const mime = contract.OwnMIME + "state+json"

// progressMIME is what state/progress.py displays where the work is as.
const progressMIME = contract.OwnMIME + "state-progress+json"

// Titles of the operations, which begin the first lines of their cells.
const (
	saveTitle    = "colab-relay: save state"
	prepareTitle = "colab-relay: prepare to restore state"
	restoreTitle = "colab-relay: restore state"
	clearTitle   = "colab-relay: clear up after"
	keepTitle    = "colab-relay: keep the variables of chunked run"
	bringTitle   = "colab-relay: bring back the variables of chunked run"
)

// cell is one operation: a call of a function of state/operate.py in shared/kernelpy.
type cell struct {
	head string // its first line, which list_executions shows
	call kernelpy.Call
}

func (j *job) cell(title, operation string, arguments ...any) cell {
	return cell{
		head: fmt.Sprintf("# %s %q\n", title, j.o.Name),
		call: kernelpy.Call{Function: "state.operate." + operation, Arguments: arguments, MIME: mime, Delivery: kernelpy.Display},
	}
}

// code is the cell's Python. The same cell always gives the same code, as a submit that is
// repeated must.
func (c cell) code(withPackage bool) string { return c.head + c.call.Code(withPackage) }
