package hostilevm

import (
	"bytes"
	"net"
	"net/http"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// wireCases are about the bytes of an answer, most of which have a right signature.
var wireCases = []Case{
	{Name: "trickle", About: "sends each answer's body byte by byte, without end in sight", Slow: true, wire: wrapped(func(w answerWriter) http.ResponseWriter { return slowWriter{w} })},
	{Name: "half-body", About: "ends each answer in the middle of its body", Slow: true, wire: wrapped(func(w answerWriter) http.ResponseWriter { return halfWriter{w} })},
	{Name: "endless-body", About: "goes on after each answer's body without end", wire: wrapped(func(w answerWriter) http.ResponseWriter { return endlessWriter{w} })},
	{Name: "bit", About: "changes one bit in the middle of each answer's body", wire: wrapped(func(w answerWriter) http.ResponseWriter { return bitWriter{w} })},
	raw("silence", "accepts requests and answers none", nil, nil, true),
	raw("no-http", "answers with bytes that are not HTTP", []byte("\x00\xff\x1b[2J"+Escape), nil, true),
	raw("endless-head", "sends headers without end", []byte("HTTP/1.1 200 OK\r\n"), bytes.Repeat([]byte("X-A: "+escaped+"\r\n"), 1000), true),
	raw("endless-line", "sends a status line without end", []byte("HTTP/1.1 200 "), bytes.Repeat([]byte("a"), 64<<10), true),
	raw("endless-hints", "sends early hints (103) without end", nil, bytes.Repeat([]byte("HTTP/1.1 103 Early Hints\r\n\r\n"), 100), true),
	raw("stranger", "answers unsigned, with HTML without end", []byte("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"), bytes.Repeat([]byte("<p>"+escaped), 1000), false),
	raw("redirect", "redirects to another address", []byte("HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/v1/probe\r\nContent-Length: 0\r\n\r\n"), nil, false),
	raw("upgrade", "switches to another protocol", []byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), bytes.Repeat([]byte{0}, 64<<10), false),
	held("switch", "switches to another protocol and is silent", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", false),
	held("hint-switch", "hints, switches to another protocol and is silent", "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", false),
	held("hint-silence", "hints, and is silent", "HTTP/1.1 103 Early Hints\r\n\r\n", true),
	held("page-silence", "begins a page, and is silent", "HTTP/1.1 404 Not Found\r\nContent-Length: 1000\r\n\r\n<html>", true),
	{Name: "breaks", About: "says which kernel it has, and breaks all other connections", Slow: true, wire: breaks},
	raw("two-lengths", "answers with two lengths", []byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"), nil, true),
	raw("terabyte", "announces a terabyte", []byte("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 1099511627776\r\n\r\n"), bytes.Repeat([]byte("x"), 64<<10), true),
}

// escaped is Escape without line breaks, for a header.
const escaped = "\x1b]0;owned\x07\u009b2J"

// answerWriter writes an answer to a request.
type answerWriter struct {
	http.ResponseWriter
	r *http.Request
}

func wrapped(wrap func(w answerWriter) http.ResponseWriter) fakevm.Wire {
	return func(w http.ResponseWriter, r *http.Request) http.ResponseWriter { return wrap(answerWriter{w, r}) }
}

// slowWriter sends a byte at a time until the relay gives up.
type slowWriter struct{ answerWriter }

func (w slowWriter) Write(p []byte) (int, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := range p {
		if _, err := w.ResponseWriter.Write(p[i : i+1]); err != nil {
			return i, err
		}
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		select {
		case <-tick.C:
		case <-w.r.Context().Done():
			return i, w.r.Context().Err()
		}
	}
	return len(p), nil
}

type halfWriter struct{ answerWriter }

func (w halfWriter) Write(p []byte) (int, error) {
	_, _ = w.ResponseWriter.Write(p[:len(p)/2])
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

type bitWriter struct{ answerWriter }

func (w bitWriter) Write(p []byte) (int, error) {
	changed := bytes.Clone(p)
	changed[len(p)/2] ^= 1
	return w.ResponseWriter.Write(changed)
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
func raw(name, about string, first, further []byte, slow bool) Case {
	return Case{Name: name, About: about, Slow: slow, wire: func(w http.ResponseWriter, _ *http.Request) http.ResponseWriter {
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

// held returns a case that answers every request with these bytes, and then waits until the relay
// gives up.
func held(name, about, first string, slow bool) Case {
	return Case{Name: name, About: about, Slow: slow, wire: func(w http.ResponseWriter, _ *http.Request) http.ResponseWriter {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err) // only HTTP/1 is served
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(first)); err == nil {
			_, _ = conn.Read(make([]byte, 1))
		}
		return nil
	}}
}

func breaks(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	if r.URL.Path == contract.PathKernel {
		return w
	}
	panic(http.ErrAbortHandler)
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
