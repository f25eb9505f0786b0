"""Which test or example shows each input that users of such tools tripped over, so that none gets lost.

A row is a kind of fault; the ids are those the tests' docstrings name. Every entry must exist: a file of
tests/asm or tests/run, or `file::test`. Rows that need tracing or a debugger are not here yet.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

CASES: dict[str, str] = {
    # hangs and progress
    "T01 both receive first": "run/hang_both_receive_first test_fabric_ends::test_two_pes_receive_first "
    "test_fabric_hang::test_two_pes_receive_first",
    "T02 nobody sends": "asm/err_no_producer test_fabric_ends::test_nobody_sends "
    "test_fabric_hang::test_nobody_sends",
    "T03 1024 PEs at one line": "run/hang_1024_alike test_fabric_hang::test_1024_equal_pes_are_one_message "
    "test_fabric_ends::test_1024_pes_at_one_line",
    "T05 two on a queue": "asm/err_two_on_a_queue asm/err_tasks "
    "test_fabric_reference_faults::test_a_busy_queue_or_thread",
    "T06 more than a FIFO holds": "run/hang_fifo_too_small run/hang_second_push "
    "test_fabric_hang::test_more_than_a_fifo_holds",
    "T08 data task without a colour": "asm/err_unbound_data_task asm/err_routes",
    "T09 no such task": "asm/err_labels asm/err_names "
    "test_fabric_reference_faults::test_tasks_that_do_not_exist",
    "T10 colours": "asm/err_range asm/err_route_form test_asm_layout::test_machine_limits "
    "test_user_faults::test_colours_that_a_machine_file_reserves",
    "T11 run again": "test_run_examples::test_a_second_run_equals_the_first "
    "test_fabric_wafer::test_memory_stays_between_runs test_user_faults::test_a_run_after_a_bad_end",
    "T12 long waits, idle PEs": "run/ok_idle_pe test_fabric_ends::test_a_million_cycles_of_waiting "
    "test_user_faults::test_a_wafer_that_waits_a_million_cycles_for_another",
    "T16 five into one": "run/ok_five_into_one test_fabric_reference_fabric::test_a_merge_takes_turns",
    "T18 grids": "asm/err_empty_grid asm/err_routes asm/err_range test_asm_layout::test_odd_grids "
    "test_fabric_wafer::test_grids_that_fit test_fabric_wafer::test_grids_that_do_not_fit "
    "test_asm_layout::test_a_full_wafer_assembles_quickly",
    "T19 never written": "run/fault_uninitialised run/ok_never_written "
    "test_fabric_wafer::test_uninitialised_read_names_the_symbol",
    # memory and addressing
    "T20 SRAM": "asm/ok_sram_exactly_full asm/err_sram_one_word_more asm/err_sram_largest_three "
    "asm/err_capacity test_fabric_wafer::test_sram_exactly_full_and_one_word_over "
    "test_asm_layout::test_memory_that_just_fits_and_one_word_more",
    "T21 code": "asm/ok_code_exactly_full asm/err_code_too_long "
    "test_asm_layout::test_code_that_does_not_fit_has_its_own_message",
    "T22 lengths": "run/ok_long_vectors asm/err_huge_counts asm/err_range "
    "test_asm_layout::test_the_longest_vectors_assemble "
    "test_fabric_engines_agree_cases::test_too_many_elements_are_an_extent_fault",
    "T24 unequal lengths": "asm/err_lengths asm/err_range run/fault_extent",
    "T25 types": "test_fabric_wafer::test_nothing_is_reinterpreted "
    "test_cli_commands::test_run_refuses_an_array_of_another_type",
    "T26 bounds, words, pc": "run/fault_bounds run/fault_illegal_word run/fault_jump_outside asm/err_tasks "
    "test_fabric_engines_agree_cases::test_a_vector_or_task_at_the_end_of_the_code_leaves_it_there "
    "test_fabric_reference_faults::test_leaving_the_code_and_illegal_words",
    # numbers
    "T27 all patterns": "test_user_faults::test_all_patterns_pass_loads_stores_and_moves "
    "test_isa_numbers::test_every_f16_pattern_decodes_to_its_value_and_encodes_back "
    "test_isa_numbers::test_every_bf16_pattern_widens_and_narrows_back "
    "test_isa_numbers::test_negate_and_absolute_are_moves_of_all_patterns "
    "test_isa_numbers::test_f16_from_double_is_one_rounding",
    "T27b rounding twice": "run/ok_literals_round_once "
    "test_isa_numbers::test_conversion_by_way_of_f32_is_a_different_path "
    "test_isa_numbers::test_f16_multiply_add_differs_from_rounding_twice",
    "T27d f16 by way of f32": "test_isa_numbers::test_add_subtract_multiply_of_f16_by_way_of_f32_is_exact "
    "test_isa_special::test_division_of_arrays_equals_the_definition",
    "T28 accumulators and order": "run/ok_order_of_sums "
    "test_isa_numbers::test_accumulator_width_and_order_show_in_a_sum "
    "test_isa_numbers::test_long_dot_product_needs_the_f32_accumulator "
    "test_programs_kernels_gemv::test_order_of_accumulation_is_inputs_then_columns",
    "T28b sizes": "test_programs_kernels_gemv::test_any_size_gives_golden_bits_and_the_cycles_of_the_formula "
    "test_programs_kernels_gemv::test_padding_never_reaches_results "
    "test_programs_kernels_table::test_golden_bits_and_cycles "
    "test_weights_groups::test_padding_of_plain_matrices_never_reaches_results",
    # assembler and command line
    "T29 fields": "test_asm_source::test_exactly_the_legal_numbers_are_accepted asm/err_range "
    "test_asm_source::test_li_takes_every_32_bit_value_in_the_fewest_words",
    "T30 branches and labels": "asm/err_labels run/limit_branch_to_self "
    "test_asm_source::test_branches_reach_their_field_and_not_further "
    "test_asm_source::test_a_far_label_names_use_and_definition "
    "test_asm_source::test_backwards_across_many_lines_is_fast",
    "T32 texts": "test_asm_source::test_awkward_texts_give_the_same_program "
    "test_asm_source::test_columns_count_characters_and_the_caret_expands_tabs "
    "test_asm_source::test_an_empty_program_is_one_error "
    "test_cli_commands::test_source_from_standard_input",
    "T33 the same every time": "test_cli_commands::test_json_is_the_same_twice_without_host "
    "test_fabric_chain::test_host_threads_change_nothing "
    "test_fabric_engines_agree::test_two_wafers_in_two_host_threads",
    "T34 ends": "run/limit_branch_to_self run/ok_idle_end run/hang_never_done "
    "test_cli_commands::test_ctrl_c_keeps_results test_cli_commands::test_exit_codes "
    "test_fabric_ends::test_interrupt_keeps_the_state",
    # model files and 4-bit weights
    "T37 safetensors": "test_weights_safetensors::test_valid_files_load "
    "test_weights_safetensors::test_each_violated_rule_is_one_sentence "
    "test_weights_safetensors::test_truncation_anywhere",
    "T39 the cache's last token": "test_user_faults::test_the_last_token_that_fits_the_cache "
    "test_user_faults::test_a_cache_of_one_token test_cli_generate::test_bad_inputs_are_one_message "
    "test_programs_layers_llama::test_the_cache_spreads_over_the_rows_and_refuses_what_it_cannot_hold",
    "T40 nibbles": "run/ok_q4_block test_weights_groups::test_interleaved_nibbles_are_told_from_halves",
    "T42 scales and groups": "run/ok_q4_scales asm/err_groups "
    "test_weights_groups::test_scale_that_is_not_finite "
    "test_weights_groups::test_zero_and_subnormal_scales_are_exact asm/err_range "
    "test_weights_gguf::test_damage_is_named_without_large_allocation "
    "test_isa_special::test_infinite_scale_and_zero_scale",
}


def exists(entry: str) -> bool:
    """Whether `asm/NAME`, `run/NAME` or `FILE::TEST` is there."""
    file, _, test = entry.partition("::")
    if not test:
        return (TESTS / f"{file}.loom").exists()
    path = TESTS / f"{file}.py"
    tree = ast.parse(path.read_text("utf-8")) if path.exists() else ast.Module([], [])
    return any(isinstance(node, ast.FunctionDef) and node.name == test for node in tree.body)


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_its_tests(case):
    assert [entry for entry in CASES[case].split() if not exists(entry)] == []
