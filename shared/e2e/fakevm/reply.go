package fakevm

import (
	"encoding/json"
	"maps"
	"net/http"
	"time"

	"colabrelay/shared/contract"
)

// Lie answers a request with a valid signature instead of the VM. If it returns false,
// the VM answers.
type Lie func(r *http.Request, body []byte) (Reply, bool)

// Reply is the answer of a Lie.
type Reply struct {
	Status   int // default: http.StatusOK
	Header   http.Header
	Body     any // bytes are sent unchanged, everything else as JSON
	Unsigned bool
}

// Lies sets the Lie.
func (v *VM) Lies(l Lie) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lie = l
}

// reply sends an answer. It is signed unless the Reply says otherwise.
func (v *VM) reply(w http.ResponseWriter, r *http.Request, reply Reply) {
	status := reply.Status
	if status == 0 {
		status = http.StatusOK
	}
	raw, isRaw := reply.Body.([]byte)
	w.Header().Set("Content-Type", "application/octet-stream")
	if !isRaw {
		raw, _ = json.Marshal(reply.Body)
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set(contract.HeaderInstance, instance.String())
	maps.Copy(w.Header(), reply.Header)
	if !reply.Unsigned && !isOpen(r) {
		if err := v.signer.SignResponse(w.Header(), r, status, raw, time.Now()); err != nil {
			panic(err)
		}
	}
	w.WriteHeader(status)
	w.Write(raw)
}
