// The service on Go's standard library. The kit's system tests check that the kit accepts it.
package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

type todo struct {
	ID    uint64 `json:"id"`
	Title string `json:"title"`
	Done  bool   `json:"done"`
}

type fieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

var (
	mutex  sync.Mutex
	todos  = map[uint64]*todo{}
	lastID uint64
)

func sendJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(value)
}

func sendError(w http.ResponseWriter, status int, message string) {
	sendJSON(w, status, map[string]string{"error": message})
}

// A struct would also accept the key "Title", because encoding/json compares the keys of a struct without case.
func field(r *http.Request, name string, value any) bool {
	body, err := io.ReadAll(r.Body)
	var fields map[string]json.RawMessage
	if err != nil || json.Unmarshal(body, &fields) != nil {
		return false
	}
	text, found := fields[name]
	return found && string(text) != "null" && json.Unmarshal(text, value) == nil
}

func collection(w http.ResponseWriter, r *http.Request) {
	mutex.Lock()
	defer mutex.Unlock()
	switch r.Method {
	case http.MethodGet:
		list := make([]*todo, 0, len(todos))
		for _, each := range todos {
			list = append(list, each)
		}
		sort.Slice(list, func(a, b int) bool { return list[a].ID < list[b].ID })
		sendJSON(w, http.StatusOK, list)
	case http.MethodPost:
		create(w, r)
	default:
		sendError(w, http.StatusMethodNotAllowed, "method not allowed")
	}
}

func create(w http.ResponseWriter, r *http.Request) {
	var title string
	if !field(r, "title", &title) {
		sendError(w, http.StatusUnprocessableEntity, "title must be a string")
		return
	}
	errors := []fieldError{}
	if strings.TrimSpace(title) == "" {
		errors = append(errors, fieldError{"title", "must not be empty"})
	}
	if utf8.RuneCountInString(title) > 120 {
		errors = append(errors, fieldError{"title", "must be at most 120 characters"})
	}
	if len(errors) > 0 {
		sendJSON(w, http.StatusUnprocessableEntity, map[string]any{"errors": errors})
		return
	}
	lastID++
	todos[lastID] = &todo{lastID, title, false}
	sendJSON(w, http.StatusCreated, todos[lastID])
}

func item(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseUint(strings.TrimPrefix(r.URL.Path, "/api/todos/"), 10, 64)
	if err != nil {
		sendError(w, http.StatusBadRequest, "invalid id")
		return
	}
	mutex.Lock()
	defer mutex.Unlock()
	found, exists := todos[id]
	if !exists {
		sendError(w, http.StatusNotFound, "no such to-do")
		return
	}
	switch r.Method {
	case http.MethodGet:
		sendJSON(w, http.StatusOK, found)
	case http.MethodPatch:
		if !field(r, "done", &found.Done) {
			sendError(w, http.StatusBadRequest, "done must be a boolean")
			return
		}
		sendJSON(w, http.StatusOK, found)
	case http.MethodDelete:
		delete(todos, id)
		w.WriteHeader(http.StatusNoContent)
	default:
		sendError(w, http.StatusMethodNotAllowed, "method not allowed")
	}
}

func isEqual(a, b string) bool {
	hashA, hashB := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(hashA[:], hashB[:]) == 1
}

func bearer(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || !isEqual(token, os.Getenv("TOKEN")) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		next(w, r)
	}
}

func basic(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if !isEqual(user+":"+password, os.Getenv("USER_PASSWORD")) {
			w.Header().Set("WWW-Authenticate", `Basic realm="admin"`)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		next(w, r)
	}
}

func text(path, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, body)
	}
}

func main() {
	user, _, _ := strings.Cut(os.Getenv("USER_PASSWORD"), ":")
	http.HandleFunc("/api/todos", collection)
	http.HandleFunc("/api/todos/", item)
	http.HandleFunc("/api/whoami", bearer(text("/api/whoami", "alice")))
	http.HandleFunc("/api/whoami/", bearer(text("/api/whoami", "alice")))
	http.HandleFunc("/admin/", basic(text("/admin/", "Hello, "+user+"!")))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("{\"url\":\"http://%s\"}\n", listener.Addr())
	panic(http.Serve(listener, nil))
}
