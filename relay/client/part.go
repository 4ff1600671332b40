package client

import (
	"fmt"
	"io"
	"net/http"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line"
)

// outgoingPart is a part of a local file that is sent.
type outgoingPart struct {
	file io.ReaderAt
	contract.Range
}

func (p *outgoingPart) open() io.Reader { return io.NewSectionReader(p.file, p.Offset, p.Length) }

// incomingPart is where a part of a file goes as it arrives.
type incomingPart struct {
	to     io.Writer
	length int64 // requested
	n      int64 // bytes written
	failed error // of to
}

// receive writes the part in an answer whose head is verified. What it writes before an error
// is authentic. An error of the destination is in p.failed.
func (p *incomingPart) receive(x *auth.Exchange, res *http.Response, body io.Reader) error {
	part, err := line.AnswerPart(x, res, body)
	if err == nil {
		_, err = io.Copy(p, part)
	}
	return err
}

// Write implements io.Writer. It refuses bytes beyond the requested length.
func (p *incomingPart) Write(b []byte) (int, error) {
	if int64(len(b)) > p.length-p.n {
		return 0, breaksBounds(fmt.Sprintf("the executor's answer is longer than the %d bytes requested", p.length), nil)
	}
	n, err := p.to.Write(b)
	p.n += int64(n)
	p.failed = err
	return n, err
}
