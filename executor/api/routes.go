package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"colabrelay/shared/contract"
)

// handle is an endpoint. The value it returns is sent as JSON; its error is translated by
// errors.go.
type handle func(r *http.Request) (any, error)

// routes are the endpoints for authenticated requests.
func (a *API) routes() http.Handler {
	mux := chi.NewRouter()
	get := func(path string, h handle) { mux.Get(path, a.json(h)) }
	post := func(path string, h handle) { mux.Post(path, a.json(h)) }

	get(contract.PathHealth, a.health)
	get(contract.PathProbe, a.probe)
	post(contract.PathExecutions, a.submit)
	get(contract.PathExecutions, a.listExecutions)
	get(contract.PathExecution, a.readExecution)
	post(contract.PathInterrupt, a.interruptExecution)
	post(contract.PathInput, a.giveInput)
	mux.Get(contract.PathBlob, a.bytes(a.blob))
	post(contract.PathJobs, a.submitJob)
	get(contract.PathJobs, a.listJobs)
	get(contract.PathJob, a.readJob)
	mux.Patch(contract.PathJob, a.json(a.patchJob))
	mux.Delete(contract.PathJob, a.json(a.deleteJob))
	get(contract.PathKernel, a.kernelStatus)
	post(contract.PathKernelRestart, a.restartKernel)
	get(contract.PathVariables, a.variables)
	get(contract.PathInspect, a.inspect)
	post(contract.PathCleanup, a.cleanup)
	get(contract.PathFiles, a.listFiles)
	get(contract.PathStat, a.stat)
	mux.Get(contract.PathContent, a.part(a.content))
	post(contract.PathCompare, a.compare)
	mux.Post(contract.PathContents, a.bytes(a.readFiles))
	post(contract.PathUploadBatch, a.putBatch)
	post(contract.PathUploads, a.startUpload)
	mux.Put(contract.PathUpload, a.json(a.putPart))
	get(contract.PathUpload, a.upload)
	post(contract.PathUploadCommit, a.commitUpload)
	mux.Delete(contract.PathUpload, a.json(a.dropUpload))
	post(contract.PathShutdown, a.shutdown)

	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, &refusal{Code: contract.CodeNotFound, Message: "no such path", Hint: "Use a relay and an executor of the same release."})
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", strings.Join(allowed(mux, r.URL.EscapedPath()), ", "))
		a.fail(w, r, &refusal{
			Code: contract.CodeNotSupported, Status: http.StatusMethodNotAllowed,
			Message: fmt.Sprintf("method %q is not allowed here", r.Method),
			Hint:    "Use a relay and an executor of the same release.",
		})
	})
	return recordRoute(mux)
}

// allowed are the methods that the path supports.
func allowed(mux chi.Router, path string) []string {
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	return slices.DeleteFunc(methods, func(m string) bool {
		return !mux.Match(chi.NewRouteContext(), m, path)
	})
}

// json turns a handle into an http.Handler.
func (a *API) json(h handle) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := h(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		a.write(w, r, http.StatusOK, v)
	}
}

// part turns a function that opens a part of a file into an http.Handler.
func (a *API) part(h func(r *http.Request) (filePart, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		part, err := h(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		answerPart(w, part)
	}
}

// bytes turns a function that returns raw bytes into an http.Handler.
func (a *API) bytes(h func(r *http.Request) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := h(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		w.Write(body) // into memory
	}
}

// recordRoute records the matched pattern for accessLog, which runs outside the router. The
// pattern is logged instead of the path because outsiders choose the path.
func recordRoute(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rctx := chi.NewRouteContext()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, rctx)))
		callOf(r).route = rctx.RoutePattern()
	})
}
