package kernelstate

import (
	"encoding/json"
	"errors"
	"path"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// FuzzReports reads any text as what the kernel displays during an operation. A report that is
// accepted names no file but a state's and has no list over its bound; progress is only shown.
func FuzzReports(f *testing.F) {
	const place = "/tmp/colab-relay-state-ab12/data.state"
	good := `{"path":"` + place + `","manifest":{"python":"3.12","pickler":"dill","variable_count":1,"variables":[{"name":"x","type":"int"}],"bytes":3,"sha256":"` + digestOf("x") + `"}}`
	f.Add(mime, []byte(good))
	f.Add(mime, []byte(strings.Replace(good, place, "/etc/passwd", 1)))
	f.Add(mime, []byte(strings.Replace(good, place, "/tmp/a/../colab-relay-state-b/data.state", 1)))
	f.Add(mime, []byte(strings.Replace(good, place, "/tmp/colab-relay-state-a/passwd", 1)))
	f.Add(mime, []byte(strings.Replace(good, `"bytes":3`, `"bytes":-3`, 1)))
	f.Add(mime, []byte(`{"path":"`+place+`","free":-1,"python":"3"}`))
	f.Add(mime, []byte(`{"missing":true,"damaged":"its SHA-256 is wrong","variables":[{}],"overwritten":["x"],"warnings":["w\u001b[2J"]}`))
	f.Add(mime, []byte(`{"warnings":[`+strings.Repeat(`"",`, 1000)+`""]}`))
	f.Add(mime, []byte(`{"blob":{"number":1,"sha256":"x","bytes":9223372036854775807}}`))
	f.Add(progressMIME, []byte(`{"variable":"x","number":2,"of":3}`))
	f.Add(progressMIME, []byte(`{"variable":1,"number":"2"}`))
	f.Fuzz(func(t *testing.T, kind string, text []byte) {
		if !json.Valid(text) {
			return // client refuses the page
		}
		var progress Progress
		progress.see(contract.Execution{Events: []contract.Event{{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{kind: text}}}})
		if kind != progressMIME && progress.At != (At{}) {
			t.Fatalf("a display of %q is %+v", kind, progress)
		}
		var s saved
		if err := readSaved(text, &s); err == nil {
			checkSaved(t, &s)
		} else if !errors.Is(err, ErrUntrustedReport) {
			t.Error(err)
		}
		var l Loaded
		if err := decode(text, &l); err == nil {
			checkLists(t, map[string]int{"variables": len(l.Variables), "modules": len(l.Modules), "failed": len(l.Failed), "overwritten": len(l.Overwritten), "warnings": len(l.Warnings)})
		}
		var p prepared
		if err := decode(text, &p); err != nil && !errors.Is(err, ErrUntrustedReport) {
			t.Error(err)
		}
	})
}

// checkSaved checks a report that was accepted, in another way than the program does.
func checkSaved(t *testing.T, s *saved) {
	t.Helper()
	folder, file := path.Split(s.Path)
	if !strings.HasPrefix(s.Path, "/") || file != dataFile || !strings.HasPrefix(path.Base(folder), contract.StateFolderPrefix) || strings.Contains(s.Path, "/../") || len(s.Path) > maxPath {
		t.Errorf("the file %q was accepted", s.Path)
	}
	m := s.Manifest
	if m.Bytes <= 0 || m.Bytes > maxBytes || len(m.SHA256) != 64 {
		t.Errorf("%d bytes with the digest %q were accepted", m.Bytes, m.SHA256)
	}
	checkLists(t, map[string]int{"variables": len(m.Variables), "modules": len(m.Modules), "skipped": len(m.Skipped), "libraries": len(m.Libraries), "warnings": len(m.Warnings)})
}

func checkLists(t *testing.T, lengths map[string]int) {
	t.Helper()
	for name, n := range lengths {
		if n > reportItems[name] {
			t.Errorf("%d %s were accepted", n, name)
		}
	}
}
