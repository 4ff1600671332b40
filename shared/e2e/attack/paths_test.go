package attack

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"colabrelay/shared/contract"
)

// outside are paths of files that must not be read or written.
func (s *stand) outside() []string {
	link := s.vm.Config.Dir + "/link"
	s.run(fmt.Sprintf("import os; os.path.lexists(%q) or os.symlink('/etc', %q)", link, link))
	return []string{
		"/etc/passwd", "/etc/shadow", "../../etc/passwd", "..", "../", "a/../../b", "./..", "/proc/self/environ", "/proc/self/mem", fmt.Sprintf("/proc/%d/environ", s.vm.PID()), fmt.Sprintf("/proc/%d/root/etc/passwd", s.vm.PID()), "/proc/1/root/x",
		"/dev/zero", "/dev/mem", "/dev/stdin", "/sys/kernel/x", "/root/.ssh/id_rsa", "/root/.bashrc", "~/x", "~root/x", "//etc/passwd", "/./etc/passwd", "/etc/../etc/passwd", "\\..\\..\\x\\..", "a\x00b", "/etc/passwd\x00.txt", "\x00",
		strings.Repeat("a", 4097), strings.Repeat("a/", 4000), strings.Repeat("../", 1300), "x/" + strings.Repeat("a", 256), link + "/passwd", "link/passwd", "link/../passwd", "link/x/y", ".colab-relay/instance.json", ".colab-relay/executor.log",
		".colab-relay/executions", ".colab-relay", "./.colab-relay/x", "a/../.colab-relay/x", "/v1/kernel", "file:///etc/passwd", "http://169.254.169.254/", "|id", "`id`", "$(id)", "-rf", "CON", "x:y", "\xff\xfe", "\u202e", "..%2f..%2fetc", "%2e%2e/x",
	}
}

const notServed = "forbidden_path|bad_request|not_found"

// paths name files outside of what the executor serves, on each endpoint that takes a path.
// Those that are odd names inside it are not found, or made there.
func (s *stand) paths() []sent {
	var all []sent
	for _, path := range s.outside() {
		q := url.Values{"path": {path}, "etag": {"x"}, "digest": {"1"}}.Encode()
		for _, endpoint := range []string{contract.PathFiles, contract.PathStat, contract.PathContent} {
			all = append(all, sent{fmt.Sprintf("%s %q", endpoint, clip(path)), http.MethodGet, endpoint + "?" + q, nil, false, notServed})
		}
		text, err := json.Marshal(map[string]any{"path": path, "size_bytes": 1, "version": "x", "overwrite": true, "paths": []string{path}, "files": []any{map[string]any{"name": path, "size_bytes": 1}}})
		must(s.t, err)
		started := notServed + "|" // an odd name inside the folder is a name
		if strings.HasPrefix(path, "/") || slices.Contains(strings.Split(path, "/"), "..") || strings.HasPrefix(path, ".c") || strings.HasPrefix(path, "link") || strings.Contains(path, "\x00") {
			started = notServed
		}
		all = append(all, post(fmt.Sprintf("start %q", clip(path)), contract.PathUploads, text, started))
		all = append(all, post(fmt.Sprintf("contents %q", clip(path)), contract.PathContents, text, notServed+"|"), post(fmt.Sprintf("compare %q", clip(path)), contract.PathCompare, text, notServed+"|"))
	}
	return all
}

// uploads have sizes, offsets and lengths that cannot be.
func uploads() []sent {
	var all []sent
	for _, start := range []string{
		`"size_bytes":-1`, `"size_bytes":9223372036854775807`, `"size_bytes":9223372036854775808`, `"size_bytes":1.5`, `"size_bytes":1,"version":""`, `"size_bytes":1,"version":"` + strings.Repeat("x", contract.MaxUploadVersion+1) + `"`,
		`"path":"folder/","size_bytes":1`, `"path":""`, `"path":"/"`, `"path":"."`,
	} {
		all = append(all, post("start "+clip(start), contract.PathUploads, []byte(`{"path":"up.bin","version":"v",`+start+`}`), "bad_request|disk_full|too_large|forbidden_path"))
	}
	for _, query := range []string{"", "offset=-1", "offset=9223372036854775807&length=8388608", "offset=9223372036854775808", "offset=x", "length=-1", "length=8388609", "length=9223372036854775807", "offset=0&length=5", "offset=1e3", "offset=0x1"} {
		for _, id := range []string{"x", "00000000-0000-0000-0000-000000000000", "..", "%2e%2e", strings.Repeat("a", 64), strings.Repeat("a", 65), "a.b", "%00"} {
			all = append(all, sent{"part " + query + " of " + clip(id), http.MethodPut, "/v1/uploads/" + id + "?" + query, []byte("12345"), false, "bad_request|not_found|too_large"})
		}
	}
	return all
}

// batches have indexes that lie.
func batches() []sent {
	batch := func(files, index string, length uint32) []byte {
		return binary.BigEndian.AppendUint32([]byte(files+index), length)
	}
	many := func(n int, entry string) string {
		return `{"path":".","files":[` + strings.TrimSuffix(strings.Repeat(entry+",", n), ",") + "]}"
	}
	var all []sent
	for name, body := range map[string][]byte{
		"nothing": {}, "three bytes": {0, 0, 1}, "an index of 4 GiB": batch("", "{}", 1<<32-1), "an index of one more": batch("", "{}", 3), "no index": batch("abc", "", 0), "an empty index": batch("", "", 0), "no JSON": batch("abc", "xx", 2),
	} {
		all = append(all, post("batch of "+name, contract.PathUploadBatch, body, "bad_request"))
	}
	for name, index := range map[string]string{
		"too few bytes": `{"path":".","files":[{"name":"a","size_bytes":5}]}`, "a negative size": `{"path":".","files":[{"name":"a","size_bytes":-1}]}`,
		"sizes that overflow": `{"path":".","files":[{"name":"a","size_bytes":9223372036854775807},{"name":"b","size_bytes":9223372036854775807}]}`, "one too many": many(contract.MaxBatchFiles+1, `{"name":"a"}`),
		"a file too large": fmt.Sprintf(`{"path":".","files":[{"name":"a","size_bytes":%d}]}`, contract.MaxBatchFile+1),
	} {
		all = append(all, post("batch with "+name, contract.PathUploadBatch, batch("abc", index, uint32(len(index))), "bad_request|too_large"))
	}
	return append(all,
		post("one file too many to compare", contract.PathCompare, []byte(many(contract.MaxManifestFiles+1, `{"name":"a"}`)), "bad_request"),
		post("one path too many to read", contract.PathContents, []byte(`{"paths":[`+strings.TrimSuffix(strings.Repeat(`"a",`, contract.MaxBatchFiles+1), ",")+`]}`), "bad_request"),
	)
}

// numbers are parameters out of their bounds.
func numbers() []sent {
	var all []sent
	for path, names := range map[string][]string{
		contract.PathExecutions: {"limit"}, "/v1/executions/x": {"offset", "max_bytes", "wait_seconds", contract.QueryBehindInput}, "/v1/executions/x/blobs/1": {"offset", "length"}, contract.PathContent: {"offset", "length", "etag"},
		contract.PathStat: {"digest", "wait_seconds"}, contract.PathInspect: {"name"},
	} {
		for _, name := range names {
			for _, value := range []string{"-1", "99999999999999999999", "1.5.5", "0x1", "1 ", "+-1", "NaN", "Inf", "1e400", "\x00", "٣", strings.Repeat("9", 10_000)} {
				all = append(all, sent{path + " " + name + "=" + clip(value), http.MethodGet, path + "?" + url.Values{name: {value}}.Encode(), nil, false, "bad_request|not_found|forbidden_path"})
			}
		}
	}
	for _, number := range []string{"0", "-1", "01", "10001", "99999999999999999999", "x", "%31", "1%00"} {
		all = append(all, sent{"blob " + number, http.MethodGet, "/v1/executions/x/blobs/" + number, nil, false, "not_found"})
	}
	return all
}
