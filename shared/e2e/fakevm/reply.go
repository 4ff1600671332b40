package fakevm

import "net/http"

// Lie answers an opened request instead of the VM; its answer is sealed and signed. If it
// returns false, the VM answers.
type Lie func(r *http.Request, body []byte) (Reply, bool)

// Reply is the answer of a Lie.
type Reply struct {
	Status int // default: http.StatusOK
	Body   any // bytes are sent unchanged, an error as a refusal, everything else as JSON
}

// Lies sets the Lie.
func (v *VM) Lies(l Lie) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lie = l
}

// Wire returns where the answer to a request is written, such as a writer that changes its
// bytes. With nil it has answered itself.
type Wire func(w http.ResponseWriter, r *http.Request) http.ResponseWriter

// Wires sets the Wire.
func (v *VM) Wires(w Wire) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wire = w
}
