package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// relayScript answers each line like a relay, and ends at the end of its input.
const relayScript = `while read -r line; do
	case $line in
	*tools/call*) echo '{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'
		echo '{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[{"type":"text","text":"Error <failed>"},{"type":"image","mimeType":"image/png","data":"AAAA"}]}}';;
	*) echo '{"jsonrpc":"2.0","id":0,"result":{}}';;
	esac
done
exit 3`

func TestTheProxyPassesAndRecordsBothDirections(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	in := `{"jsonrpc":"2.0","id":0,"method":"initialize"}
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code_quick","arguments":{"code":"1"}}}
{"jsonrpc":"2.0","id":"2","method":"tools/call","params":{"name":"get_execution"}}`
	var out bytes.Buffer
	// The last call has no line break: a host that is killed may leave such a line.
	code, err := proxy([]string{log, "sh", "-c", relayScript}, strings.NewReader(in), &out)
	if err != nil || code != 3 {
		t.Errorf("exit code %d, %v, want the program's, 3", code, err)
	}
	if n := strings.Count(out.String(), "\n"); n != 3 || !strings.Contains(out.String(), "Error <failed>") {
		t.Errorf("the host got %d lines: %s", n, &out)
	}
	got, err := readLog(log)
	if err != nil {
		t.Fatal(err)
	}
	want := []*sent{
		{Tool: "run_code_quick", Args: map[string]any{"code": "1"}, Answered: true, IsError: true, Texts: []string{"Error <failed>"}, Images: []picture{{"image/png", "AAAA"}}},
		{Tool: "get_execution"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(sent{}, "Ended")); diff != "" {
		t.Error(diff)
	}
}
