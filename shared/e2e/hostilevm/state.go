package hostilevm

import (
	"encoding/json"
	"fmt"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// stateCases report a saved state that the relay must not fetch.
var stateCases = []Case{
	reports("state-passwd", "/etc/passwd", int64(len(evil)), evil),
	reports("state-outside", "/tmp/colab-relay-state-x/../../etc/data.state", int64(len(evil)), evil),
	reports("state-name", "/tmp/colab-relay-state-x/other", int64(len(evil)), evil),
	reports("state-terabyte", "/tmp/colab-relay-state-x/data.state", 1<<40, evil),
	reports("state-size", "/tmp/colab-relay-state-x/data.state", 1<<30, evil),
	reports("state-digest", "/tmp/colab-relay-state-x/data.state", int64(len(evil)), "something else"),
	listOfState(),
}

// StatePath is a path that an honest kernel could report for a saved state.
const StatePath = "/tmp/colab-relay-state-x/data.state"

// reports returns a case that reports a state with this path and size and with the digest
// of content. Every path is a short file.
func reports(name, path string, size int64, content string) Case {
	return Case{
		Name: name, About: fmt.Sprintf("reports a saved state of %d bytes in %s, which is a different file", size, path),
		routes: func(*fakevm.VM) routes {
			return saving(fmt.Sprintf(`{"path":%q,"manifest":{"python":"3.12","pickler":"pickle","variables":[],"bytes":%d,"sha256":%q}}`,
				path, size, fakevm.Digest([]byte(content))))
		},
	}
}

// listOfState reports as many variables as fit into a blob.
func listOfState() Case {
	return Case{Name: "state-list", About: "reports a saved state of 5 million variables", routes: func(*fakevm.VM) routes {
		return saving(fmt.Sprintf(`{"path":%q,"manifest":{"python":"3.12","pickler":"pickle","variables":[%s{}],"bytes":20,"sha256":%q}}`,
			StatePath, strings.Repeat("{},", 300_000), fakevm.Digest([]byte(evil))))
	}}
}

// saving answers every submit with a display of the report.
func saving(report string) routes {
	return routes{
		"POST " + contract.PathExecutions: func(q question) fakevm.Reply {
			return execution(requestID(q), contract.Event{
				Type: contract.EventDisplayData, Data: bundle(contract.OwnMIME+"state+json", string(json.RawMessage(report))),
			})
		},
		"GET " + contract.PathStat: func(q question) fakevm.Reply {
			return fakevm.Reply{Body: fileStat(q.URL.Query().Get("path"), []byte(evil))}
		},
		"GET " + contract.PathContent: func(question) fakevm.Reply { return fakevm.Reply{Body: []byte(evil)} },
	}
}
