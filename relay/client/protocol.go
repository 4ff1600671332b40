package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"colabrelay/shared/contract"
)

// protocolTime bounds the question for the executor's protocol: it comes on top of a
// call that has failed already.
const protocolTime = 5 * time.Second

// byProtocol is err, or what is behind it when the executor speaks another protocol
// than this relay. Such an executor can't check our signature, so it answers as it does
// to a stranger, or signs in a form we don't know. Only /health, which is unsigned,
// tells; nothing but the number is taken from there, and it decides only which words
// the user reads.
func (c *Client) byProtocol(ctx context.Context, err error) error {
	var e, other *Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Kind {
	case KindWrongSecret, KindNotExecutor, KindWrongProtocol:
	default:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, protocolTime)
	defer cancel()
	if _, unhealthy := c.Health(ctx); !errors.As(unhealthy, &other) || other.Kind != KindWrongProtocol {
		return err
	}
	other.sent, other.Err = e.sent, e.Err
	return other
}

// otherProtocol is the error of an executor that speaks another protocol.
func otherProtocol(theirs int) *Error {
	message := fmt.Sprintf("the executor speaks protocol %d and this relay protocol %d: the relay on this computer is the older one", theirs, contract.Protocol)
	step := "update the relay on this computer to the executor's release, then start the MCP host again"
	if theirs < contract.Protocol {
		message = fmt.Sprintf("the executor speaks protocol %d and this relay protocol %d: the executor on the VM is the older one", theirs, contract.Protocol)
		step = "update the executor: run the cell of this relay's release in Colab (`relay bootstrap` prints it)"
	}
	return problemWithHint(KindWrongProtocol, message, step, nil)
}
