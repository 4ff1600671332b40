package hostilevm

import (
	"encoding/json"
	"fmt"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// stateCases are kernels whose report of a saved state names what the relay should not
// fetch.
var stateCases = []Case{
	reports("state-passwd", "/etc/passwd", int64(len(evil)), evil),
	reports("state-outside", "/tmp/colab-relay-state-x/../../etc/data.state", int64(len(evil)), evil),
	reports("state-name", "/tmp/colab-relay-state-x/other", int64(len(evil)), evil),
	reports("state-terabyte", "/tmp/colab-relay-state-x/data.state", 1<<40, evil),
	reports("state-size", "/tmp/colab-relay-state-x/data.state", 1<<30, evil),
	reports("state-digest", "/tmp/colab-relay-state-x/data.state", int64(len(evil)), "something else"),
	listOfState(),
}

// StatePath is the place of a state that an honest kernel could report.
const StatePath = "/tmp/colab-relay-state-x/data.state"

// reports is a kernel that tells of a state at this path, of this size and of the
// digest of content. The VM has a short file there, whatever the path.
func reports(name, path string, size int64, content string) Case {
	return Case{
		Name: name, About: fmt.Sprintf("reports a saved state of %d bytes in %s, where the file is another one", size, path),
		routes: func(*fakevm.VM) routes {
			return saving(fmt.Sprintf(`{"path":%q,"manifest":{"python":"3.12","pickler":"pickle","variables":[],"bytes":%d,"sha256":%q}}`,
				path, size, fakevm.Digest([]byte(content))))
		},
	}
}

// listOfState is a report of as many variables as a blob has room for.
func listOfState() Case {
	return Case{Name: "state-list", About: "reports a saved state of 5 million variables", routes: func(*fakevm.VM) routes {
		return saving(fmt.Sprintf(`{"path":%q,"manifest":{"python":"3.12","pickler":"pickle","variables":[%s{}],"bytes":20,"sha256":%q}}`,
			StatePath, strings.Repeat("{},", 300_000), fakevm.Digest([]byte(evil))))
	}}
}

// saving answers each submit with a display of the report.
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
