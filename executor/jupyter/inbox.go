package jupyter

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is what a closed Client's methods return.
var ErrClosed = errors.New("the client is closed")

// inbox holds messages between the goroutines that read sockets, which must
// never wait, and the one that takes them. ipykernel drops what a slow reader
// leaves in its own queue, the idle status too; here only output is dropped, and
// counted.
type inbox struct {
	limit int64 // bytes

	mu       sync.Mutex
	messages []*Message
	bytes    int64
	dropped  map[string]Dropped // by parent's id, for its next message
	closed   bool
	wake     chan struct{} // buffered
}

func newInbox(limit int64) *inbox {
	return &inbox{limit: limit, dropped: map[string]Dropped{}, wake: make(chan struct{}, 1)}
}

// droppable are the messages that are nothing but output.
var droppable = map[string]bool{
	MsgStream: true, MsgDisplayData: true, MsgUpdateDisplayData: true, MsgExecuteResult: true,
}

// put never waits. A message over the bound is taken when there is no other.
func (b *inbox) put(m *Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	parent := m.ParentHeader.MsgID
	if droppable[m.Header.MsgType] && b.bytes > 0 && b.bytes+m.size > b.limit {
		d := b.dropped[parent]
		b.dropped[parent] = Dropped{d.Messages + 1, d.Bytes + m.size}
		return
	}
	m.Dropped = b.dropped[parent]
	delete(b.dropped, parent)
	b.messages = append(b.messages, m)
	b.bytes += m.size
	b.signal()
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take waits for the next message.
func (b *inbox) take(ctx context.Context) (*Message, error) {
	for {
		b.mu.Lock()
		if len(b.messages) > 0 {
			m := b.messages[0]
			b.messages[0] = nil
			b.messages = b.messages[1:]
			b.bytes -= m.size
			b.mu.Unlock()
			return m, nil
		}
		closed := b.closed
		b.mu.Unlock()
		if closed {
			return nil, ErrClosed
		}
		select {
		case <-b.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.signal()
}
