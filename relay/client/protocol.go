package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"colabrelay/shared/contract"
)

// protocolTime bounds the request for the executor's protocol, which follows a call that has
// failed.
const protocolTime = 5 * time.Second

// byProtocol returns err, or a clearer error if the executor uses another protocol than this
// relay. Such an executor can't check our signature, so it answers as it does to a stranger,
// or signs in a form that we don't know. Only the unsigned /health reveals the protocol;
// nothing else is read from there, and it decides only which words the user reads.
func (c *Client) byProtocol(ctx context.Context, err error) error {
	e, _ := errors.AsType[*Error](err)
	switch kindOf(err) {
	case KindWrongSecret, KindNotExecutor, KindIntercepted, KindWrongProtocol:
	default:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, protocolTime)
	defer cancel()
	_, unhealthy := c.Health(ctx)
	other, ok := errors.AsType[*Error](unhealthy)
	if !ok || other.Kind != KindWrongProtocol {
		return err
	}
	other.sent, other.Err = e.sent, e.Err
	return other
}

// otherProtocol returns the error for an executor that uses another protocol.
func otherProtocol(theirs int) *Error {
	message := fmt.Sprintf("the executor uses protocol %d and this relay protocol %d: the relay on this computer is older", theirs, contract.Protocol)
	hint := "Update the relay on this computer to the executor's release, then start the MCP host again."
	if theirs < contract.Protocol {
		message = fmt.Sprintf("the executor uses protocol %d and this relay protocol %d: the executor on the VM is older", theirs, contract.Protocol)
		hint = "Update the executor to this relay's release (on Colab: run the cell that `colab-relay bootstrap` prints; by SSH: `colab-relay ssh HOST --stop`, then start it again)."
	}
	return problemWithHint(KindWrongProtocol, message, hint, nil)
}
