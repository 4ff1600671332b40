package jupyter

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"colabrelay/shared/tier"
)

func TestDisplayIsDecodedUpToItsBoundAndTheRestIsCounted(t *testing.T) {
	for _, n := range []int{maxMIMETypes, maxMIMETypes + 1, 20_000} {
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
		over := n - maxMIMETypes
		if len(d.Data) != maxMIMETypes || d.OmittedTypes != over || d.OmittedBytes != int64(over*len(`x/000000"v"`)) {
			t.Errorf("of %d: %d kept, %d of %d bytes omitted", n, len(d.Data), d.OmittedTypes, d.OmittedBytes)
		}
	}
}

func TestTracebackOverItsBoundIsNotDecoded(t *testing.T) {
	tier.Long(t)
	atBound := `["` + strings.Repeat("x", maxTraceback-len(`[""]`)) + `"]`
	for _, raw := range []string{atBound, `[` + atBound[1:len(atBound)-1] + ` ]`} {
		var got Traceback // directly: the race detector makes each pass of encoding/json slow
		if err := got.UnmarshalJSON([]byte(raw)); err != nil {
			t.Fatal(err)
		}
		if over := len(raw) > maxTraceback; len(got) != 1 || strings.Contains(got[0], "omitted") != over {
			t.Errorf("%d bytes: %d frames, %.60q", len(raw), len(got), got[0])
		}
	}
}

func TestReplyIsDecodedUpToItsBoundsOfItems(t *testing.T) {
	tier.Long(t)
	for _, n := range []int{100, 101, maxTracebackItems, maxTracebackItems + 1, 100_000} {
		members := make([]string, n)
		for i := range members {
			members[i] = fmt.Sprintf(`"k%d":{}`, i)
		}
		raw := `{"status":"error","user_expressions":{` + strings.Join(members, ",") +
			`},"payload":[{}` + strings.Repeat(`,{}`, n-1) + `],"traceback":["first"` + strings.Repeat(`,""`, n-2) + `,"last"]}`
		var r ExecuteReply
		if err := json.Unmarshal([]byte(raw), &r); err != nil {
			t.Fatal(err)
		}
		if len(r.UserExpressions) != maxExpressions || len(r.Payload.Items) != maxPayloads || r.Payload.Omitted != n-maxPayloads || r.Payload.OmittedBytes != int64(2*(n-maxPayloads)) {
			t.Errorf("of %d: %d expressions, %d payloads, %d more omitted", n, len(r.UserExpressions), len(r.Payload.Items), r.Payload.Omitted)
		}
		frames := n
		if n > maxTracebackItems {
			frames = maxTracebackItems + 1
			if mark := r.Traceback[maxTracebackItems/2]; mark != fmt.Sprintf("[… %d frames of the traceback are omitted …]", n-maxTracebackItems) {
				t.Errorf("of %d: the mark is %q", n, mark)
			}
		}
		if len(r.Traceback) != frames || r.Traceback[0] != "first" || r.Traceback[len(r.Traceback)-1] != "last" {
			t.Errorf("of %d: %d frames", n, len(r.Traceback))
		}
	}
}
