package jupyter

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestDisplayIsDecodedUpToItsBoundAndCountsTheRest(t *testing.T) {
	for _, n := range []int{MaxMIMETypes, MaxMIMETypes + 1, 100_000} {
		data := map[string]string{}
		for i := range n {
			data[fmt.Sprintf("x/%06d", i)] = "v"
		}
		raw, err := json.Marshal(map[string]any{"data": data})
		if err != nil {
			t.Fatal(err)
		}
		var d DisplayData
		if err := d.UnmarshalJSON(raw); err != nil {
			t.Fatal(err)
		}
		over := n - MaxMIMETypes
		if len(d.Data) != MaxMIMETypes || d.OmittedTypes != over || d.OmittedBytes != int64(over*len(`x/000000"v"`)) {
			t.Errorf("of %d: %d kept, %d of %d bytes omitted", n, len(d.Data), d.OmittedTypes, d.OmittedBytes)
		}
	}
}

func TestTracebackOverItsBoundIsNotDecoded(t *testing.T) {
	whole := `["` + strings.Repeat("x", maxTraceback-len(`[""]`)) + `"]`
	for _, raw := range []string{whole, `[` + whole[1:len(whole)-1] + ` ]`} {
		var e ErrorContent
		if err := json.Unmarshal([]byte(`{"ename":"E","traceback":`+raw+`}`), &e); err != nil {
			t.Fatal(err)
		}
		if over := len(raw) > maxTraceback; len(e.Traceback) != 1 || strings.Contains(e.Traceback[0], "left out") != over {
			t.Errorf("%d bytes: %d frames, %.60q", len(raw), len(e.Traceback), e.Traceback[0])
		}
	}
}
