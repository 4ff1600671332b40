package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// A restarted executor has forgotten the nonces of earlier requests. It must refuse
// them because they name another start, even if they were signed for a future time.
func TestACapturedRequestDoesNothingAfterARestart(t *testing.T) {
	tier.Long(t)
	p := start(t)
	p.ready()
	secret := withEnv("EXECUTOR_SECRET=" + p.secret.Reveal())
	type captured struct {
		req      *http.Request
		exchange *auth.Exchange
	}
	var all []captured
	for _, ahead := range []time.Duration{0, contract.ClockSkew - 20*time.Second} {
		for _, path := range []string{contract.PathExecutions, contract.PathKernelRestart, contract.PathShutdown} {
			body := []byte(`{"request_id":"captured","code":"1","kernel_id":""}`)
			req, x := p.sealed("POST", path, body, time.Now().Add(ahead))
			all = append(all, captured{req, x})
		}
	}
	p.cmd.Process.Kill()
	p.exit()
	must(t, os.Remove(p.readyFile()))

	again := start(t, in(p.dir), secret)
	again.ready()
	before := call[contract.Kernel](again, "GET", contract.PathKernel, nil)
	for _, c := range all {
		c.req.URL.Host = strings.TrimPrefix(again.url, "http://")
		res, answer := again.send(c.req, c.exchange)
		var refused contract.ErrorBody
		must(t, json.Unmarshal(answer, &refused))
		if res.StatusCode != http.StatusConflict || refused.Error.Code != contract.CodeNewStart {
			t.Errorf("%s captured before the restart was answered %d %s", c.req.URL.Path, res.StatusCode, answer)
		}
	}
	if list := call[contract.ExecutionList](again, "GET", contract.PathExecutions, nil); len(list.Executions) != 0 {
		t.Errorf("it ran: %+v", list.Executions)
	}
	if after := call[contract.Kernel](again, "GET", contract.PathKernel, nil); after.KernelID != before.KernelID {
		t.Errorf("the kernel is %s, was %s", after.KernelID, before.KernelID)
	}
}
