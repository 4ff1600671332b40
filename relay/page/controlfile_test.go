package page

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"colabrelay/shared/memorydir"
)

// FuzzControlFiles reads any file under any name as the control file of a page. A file that
// counts has a port to ask at and a secret, and only the bearer of that secret is let in.
func FuzzControlFiles(f *testing.F) {
	f.Add("4711.json", []byte(`{"pid":4711,"port":40123,"secret":"RLW2Q3FZ","started":"2026-11-22T00:00:00Z"}`))
	f.Add("1.json", []byte(`{"pid":1,"port":65536,"secret":"s"}`))
	f.Add("7.json", []byte(`{"pid":-7,"port":1,"secret":"s"}`))
	f.Add("2.json", []byte(`{"pid":1,"port":1,"secret":"a\r\nb"}`))
	f.Add("01.json", []byte(`{"pid":1,"port":1,"secret":"s"}`))
	f.Add("99999999999.json", []byte(`{"pid":1,"port":1,"secret":"s"}`))
	f.Add(".new-1", []byte("{"))
	dir := memorydir.New(f)
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		path := filepath.Join(dir, name)
		if name != filepath.Base(name) || os.WriteFile(path, text, 0o600) != nil {
			return // no name of a file
		}
		defer os.Remove(path)
		files, err := readControlFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		for at, file := range files {
			if n, err := strconv.Atoi(name[:max(0, len(name)-len(".json"))]); err != nil || n <= 0 || at != path || len(text) > maxControlFile {
				t.Errorf("%q counts as a control file", name)
			}
			if file.PID <= 0 || file.Port <= 0 || file.Port > 65535 || file.Secret == "" {
				t.Errorf("%q is %+v", text, file)
			}
			c := control{secret: file.Secret}
			r := &http.Request{Method: "GET", RequestURI: controlStatus, URL: &url.URL{Path: controlStatus}, Host: "127.0.0.1:" + strconv.Itoa(file.Port), Header: http.Header{"Authorization": {"Bearer " + file.Secret + "x"}}}
			if c.handles(r, file.Port) {
				t.Errorf("another secret than %q is let in", file.Secret)
			}
			r.Header.Set("Authorization", "Bearer "+file.Secret)
			if !c.handles(r, file.Port) {
				t.Errorf("the secret %q is refused", file.Secret)
			}
		}
	})
}
