"""Operations on the whole journal: checks of its hash chain, replay, comparison with the tables, and backup."""
