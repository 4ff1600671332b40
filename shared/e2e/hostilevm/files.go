package hostilevm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// fileCases lie about files, folders and uploads.
var fileCases = []Case{
	statCase("file-negative", "reports files of a negative size", func(st *contract.FileStat) { st.SizeBytes = -1 }),
	statCase("file-largest", "reports files of the largest size", func(st *contract.FileStat) { st.SizeBytes = math.MaxInt64 }),
	statCase("file-longer", "sends parts that are longer than the file", func(st *contract.FileStat) { st.SizeBytes = 3 }),
	statCase("file-shorter", "sends parts that are shorter than asked for", func(st *contract.FileStat) { st.SizeBytes = 100 << 20 }),
	statCase("file-digest", "reports a digest that no file has", func(st *contract.FileStat) { st.SHA256 = strings.Repeat("0", 64) }),
	statCase("file-hashing", "computes digests without end", func(st *contract.FileStat) {
		st.SHA256 = ""
	}),
	statCase("file-etag", "reports a different etag for each request", func(st *contract.FileStat) { st.ETag = fmt.Sprint(changes.Add(1)) + Escape }),
	folderCase("folder-endless", "lists a folder without end", func(after string) []contract.File {
		all := make([]contract.File, contract.MaxListFiles)
		for i := range all {
			all[i] = contract.File{Name: fmt.Sprintf("%s%04d", after[:min(len(after), 200)], i), SizeBytes: 1, Modified: at}
		}
		return all
	}, true),
	folderCase("folder-same", "lists the same page of a folder without end", func(string) []contract.File {
		return []contract.File{{Name: "a", SizeBytes: 1, Modified: at}}
	}, true),
	folderCase("folder-long", "lists a folder without end, with names of 4,096 bytes", func(after string) []contract.File {
		all := make([]contract.File, contract.MaxListFiles)
		for i := range all {
			all[i] = contract.File{Name: strings.Repeat("n", 4096-16) + fmt.Sprintf("%016x", changes.Add(1)), SizeBytes: 1, Modified: at}
		}
		return all
	}, true),
	folderCase("folder-deep", "lists a folder in each folder", func(string) []contract.File {
		return []contract.File{{Name: "d", IsDir: true, Modified: at}}
	}, false),
	folderCase("folder-sizes", "lists files whose sizes exceed the largest number together", func(string) []contract.File {
		all := make([]contract.File, 900)
		for i := range all {
			all[i] = contract.File{Name: fmt.Sprint(i), SizeBytes: math.MaxInt64 / 2, Modified: at}
		}
		return all
	}, false),
	{Name: "contents", About: "answers a batch read with an index that fits neither the request nor the bytes", routes: func(*fakevm.VM) routes {
		return with(folderRoutes(func(string) []contract.File {
			return []contract.File{{Name: "a", SizeBytes: 5, Modified: at}, {Name: "b", SizeBytes: 5, Modified: at}}
		}, false), routes{"POST " + contract.PathContents: func(question) fakevm.Reply {
			body, err := contract.AppendIndex([]byte(evil), contract.Contents{Files: []contract.Content{{SizeBytes: math.MaxInt64, Modified: at}, {SizeBytes: -7}, {SizeBytes: 1}}})
			if err != nil {
				panic(err) // structs of the contract
			}
			return fakevm.Reply{Body: body}
		}})
	}},
	uploadCase("upload-missing", "asks for bytes of an upload that it does not have", contract.Upload{
		UploadID: "u", Status: contract.UploadReceiving,
		Missing: []contract.Range{{Offset: math.MaxInt64 - 1, Length: math.MaxInt64}, {Offset: -5, Length: 10}, {Offset: 0, Length: -1}},
	}),
	uploadCase("upload-again", "asks for the same bytes of an upload without end", contract.Upload{
		UploadID: "u", Status: contract.UploadReceiving, Missing: []contract.Range{{Offset: 0, Length: 4}},
	}),
	uploadCase("upload-hashing", "verifies an upload without end", contract.Upload{
		UploadID: "u", Status: contract.UploadHashing,
	}),
	uploadCase("upload-elsewhere", "places an upload at another path", contract.Upload{
		UploadID: "../x?" + Escape, Status: contract.UploadCommitted, Path: "/root/.bashrc" + Escape,
	}),
}

// changes counts the answers of file-etag.
var changes atomic.Int64

// statCase changes what is said of every file. Its content is short.
func statCase(name, about string, change func(*contract.FileStat)) Case {
	return Case{Name: name, About: about, routes: func(*fakevm.VM) routes {
		return routes{
			"GET " + contract.PathStat: func(q question) fakevm.Reply {
				st := fileStat(q.URL.Query().Get("path"), []byte(evil))
				change(&st)
				return fakevm.Reply{Body: st}
			},
			"GET " + contract.PathContent: func(question) fakevm.Reply { return fakevm.Reply{Body: []byte(evil)} },
		}
	}}
}

// folderCase reports every path as a folder, which has these entries after a name.
func folderCase(name, about string, entries func(after string) []contract.File, endless bool) Case {
	return Case{Name: name, About: about, routes: func(*fakevm.VM) routes { return folderRoutes(entries, endless) }}
}

func folderRoutes(entries func(after string) []contract.File, endless bool) routes {
	return routes{
		"GET " + contract.PathStat: func(q question) fakevm.Reply {
			path := q.URL.Query().Get("path")
			return fakevm.Reply{Body: contract.FileStat{File: contract.File{Name: base(path), Path: path, IsDir: true, Modified: at}}}
		},
		"GET " + contract.PathFiles: func(q question) fakevm.Reply {
			path := q.URL.Query().Get("path")
			got := contract.Files{Path: path, Files: entries(q.URL.Query().Get("after")), Truncated: endless}
			for i := range got.Files {
				got.Files[i].Path = path + "/" + got.Files[i].Name
			}
			got.FileCount = len(got.Files)
			return fakevm.Reply{Body: got}
		},
		"POST " + contract.PathContents: evilContents,
	}
}

// uploadCase answers every request about an upload with the same.
func uploadCase(name, about string, u contract.Upload) Case {
	return Case{Name: name, About: about, routes: func(*fakevm.VM) routes {
		answer := just(u)
		return routes{"POST " + contract.PathUploads: answer, "PUT " + contract.PathUpload: answer}
	}}
}

// with returns all routes of both; those of more count.
func with(some, more routes) routes {
	for route, answer := range more {
		some[route] = answer
	}
	return some
}

// formCases send answers whose JSON has another form than the contract's.
var formCases = []Case{
	{Name: "null", About: "makes every value null", warp: func(v any) any { return each(v, func(any) any { return nil }) }},
	{Name: "types", About: "gives every value another type", warp: func(v any) any { return each(v, otherType) }},
	{Name: "largest", About: "makes every number the largest", warp: func(v any) any { return each(v, number(json.Number("9223372036854775807"))) }},
	{Name: "negative", About: "makes every number negative", warp: func(v any) any { return each(v, number(json.Number("-9223372036854775808"))) }},
	{Name: "float", About: "makes every number a huge fraction", warp: func(v any) any { return each(v, number(math.MaxFloat64)) }},
	{Name: "long", About: "makes every text 2 MB long, on one line", warp: func(v any) any { return each(v, text(strings.Repeat("a\u202e", 1<<19))) }},
	{Name: "lines", About: "gives every text 300,000 lines", warp: func(v any) any { return each(v, text(strings.Repeat("\n\r\x1b[1A", 150_000))) }},
	{Name: "paths", About: "makes every text a path of the laptop", warp: func(v any) any { return each(v, text("../../../.ssh/authorized_keys")) }},
	{Name: "nested", About: "answers with arrays in one another, 9,000 deep", warp: func(any) any { return nestedJSON(9_000) }},
	{Name: "deep-output", About: "shows JSON and metadata that are nested 9,000 deep", routes: func(*fakevm.VM) routes {
		return routes{"POST " + contract.PathExecutions: func(q question) fakevm.Reply {
			return execution(requestID(q), contract.Event{
				Type: contract.EventDisplayData, Data: bundle("application/json", string(nestedJSON(9_000))), Metadata: nestedJSON(9_000),
			})
		}}
	}},
	{Name: "empty", About: "answers everything with nothing", warp: func(any) any { return json.RawMessage("{}") }},
	{Name: "list", About: "answers everything with a list", warp: func(any) any { return json.RawMessage("[[],[]]") }},
}

func nestedJSON(levels int) json.RawMessage {
	return json.RawMessage(strings.Repeat("[", levels) + strings.Repeat("]", levels))
}

// each applies change to every value in v that is neither an object nor a list.
func each(v any, change func(any) any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = each(v[i], change)
		}
		return v
	case map[string]any:
		for key := range v {
			v[key] = each(v[key], change)
		}
		return v
	}
	return change(v)
}

// number returns a change of numbers to n. It leaves small ones, without which no answer is
// read: the protocol.
func number(n any) func(any) any {
	return func(v any) any {
		if old, ok := v.(json.Number); ok && old != contractProtocol {
			return n
		}
		return v
	}
}

var contractProtocol = json.Number(string(marshal(contract.Protocol)))

// text returns a change of texts to s. It leaves those that a program compares, such as ids.
func text(s string) func(any) any {
	return func(v any) any {
		old, ok := v.(string)
		if _, notATime := parseTime(old); !ok || len(old) < 5 || notATime == nil || strings.HasSuffix(old, "-1") || old == string(contract.StatusSucceeded) {
			return v
		}
		return s
	}
}

// otherType returns a value of another type.
func otherType(v any) any {
	switch v.(type) {
	case string:
		return []string{"a", "b"}
	case bool:
		return "true"
	case nil:
		return map[string]any{"a": nil}
	}
	return "7"
}

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
