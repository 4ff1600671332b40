package hostilevm

import (
	"net"
	"net/http"
	"time"

	"colabrelay/shared/e2e/fakevm"
)

// wireCases are about the bytes of an answer, most of which have a right signature.
var wireCases = []Case{
	{Name: "endless-body", About: "goes on after each answer's body without end", wire: wrapped(func(w answerWriter) http.ResponseWriter { return endlessWriter{w} })},
	raw("silence", "accepts requests and answers none", nil, nil),
}

// answerWriter writes an answer to a request.
type answerWriter struct {
	http.ResponseWriter
	r *http.Request
}

func wrapped(wrap func(w answerWriter) http.ResponseWriter) fakevm.Wire {
	return func(w http.ResponseWriter, r *http.Request) http.ResponseWriter { return wrap(answerWriter{w, r}) }
}

type endlessWriter struct{ answerWriter }

func (w endlessWriter) WriteHeader(status int) {
	w.Header().Del("Content-Length")
	w.answerWriter.WriteHeader(status)
}

func (w endlessWriter) Write(p []byte) (int, error) {
	w.Header().Del("Content-Length")
	for w.r.Context().Err() == nil {
		if _, err := w.ResponseWriter.Write(p); err != nil {
			return 0, err
		}
	}
	return 0, w.r.Context().Err()
}

// raw returns a case that answers every request with these bytes: first, and then further ones
// without end. Without further ones it closes the connection, or waits if first is empty too.
func raw(name, about string, first, further []byte) Case {
	return Case{Name: name, About: about, wire: func(w http.ResponseWriter, _ *http.Request) http.ResponseWriter {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err) // only HTTP/1 is served
		}
		defer conn.Close()
		// A relay that stops reading would otherwise hold the writer.
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if len(first)+len(further) == 0 {
			_, _ = conn.Read(make([]byte, 1)) // until the relay gives up
			return nil
		}
		send(conn, first, further)
		return nil
	}}
}

func send(conn net.Conn, first, further []byte) {
	if _, err := conn.Write(first); err != nil || len(further) == 0 {
		return
	}
	for {
		if _, err := conn.Write(further); err != nil {
			return
		}
	}
}
