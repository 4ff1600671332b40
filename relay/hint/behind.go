package hint

import (
	"fmt"

	"colabrelay/shared/contract"
)

// Asking describes the run b, which occupies the kernel and waits for input.
func Asking(b *contract.Behind) string {
	if b.Password {
		return fmt.Sprintf("run %s, which asks for a password (%q)", b.ExecutionID, b.Prompt)
	}
	return fmt.Sprintf("run %s, which waits for input (%q)", b.ExecutionID, b.Prompt)
}

// ForPrompt returns the hint for a call that can do nothing until the prompt of the run b is
// answered.
func ForPrompt(b *contract.Behind) Hint {
	h := Hint{
		Code:   string(contract.CodeKernelBusy),
		Model:  fmt.Sprintf("Answer that run with provide_input (execution_id %q), or end it with interrupt_execution.", b.ExecutionID),
		Person: fmt.Sprintf("Answer it with `colab-relay input %s`, or end it with `colab-relay interrupt %s`.", b.ExecutionID, b.ExecutionID),
	}
	if b.Password {
		h.Model = passwordStep(b.ExecutionID) + " Or end that run with interrupt_execution."
	}
	return h
}

// passwordStep is what a model does about a run that asks for a password.
func passwordStep(id string) string {
	return fmt.Sprintf("Ask the user to run `colab-relay input %s` in a terminal on this computer and to type the password there; never ask the user to tell it to you.", id)
}

// ForPassword returns what a model does about the run id, which asks for a password.
func ForPassword(id string) string { return passwordStep(id) }
