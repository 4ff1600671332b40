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

// cell is the code of one operation, a function of state/operate.py in shared/kernelpy.
// Its first line is what list_executions shows. The same operation gives the same text,
// as a submit that is repeated must.
func (j *job) cell(title, operation string, arguments ...any) string {
	call := kernelpy.Call{Function: "state.operate." + operation, Arguments: arguments, MIME: mime, Delivery: kernelpy.Display}
	return fmt.Sprintf("# %s %q\n%s", title, j.o.Name, call.Code(true))
}
