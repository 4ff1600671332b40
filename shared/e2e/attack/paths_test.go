package attack

import (
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
		"/etc/passwd", "../../etc/passwd", "..", "a/../../b", "/proc/self/environ", fmt.Sprintf("/proc/%d/root/etc/passwd", s.vm.PID()), "/dev/zero", "/root/.ssh/id_rsa",
		"~/x", "//etc/passwd", "\\..\\..\\x\\..", "a\x00b", strings.Repeat("a", 4097), strings.Repeat("../", 1300), "x/" + strings.Repeat("a", 256), link + "/passwd",
		"link/passwd", "link/../passwd", ".colab-relay/instance.json", ".colab-relay", "a/../.colab-relay/x", "file:///etc/passwd", "$(id)", "\xff\xfe", "..%2f..%2fetc",
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
