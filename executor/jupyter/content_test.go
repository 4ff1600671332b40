package jupyter

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestDisplayIsDecodedUpToItsBoundAndTheRestIsCounted(t *testing.T) {
	for _, n := range []int{maxMIMETypes, maxMIMETypes + 1} {
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
